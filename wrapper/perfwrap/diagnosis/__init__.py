"""The diagnosis of a run: runs the rules, attributes time to findings, merges them over ranks, gives one verdict."""

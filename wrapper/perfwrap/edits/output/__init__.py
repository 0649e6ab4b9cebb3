"""Edits of what the program writes: log lines and checkpoints."""

"""Edits of what a loop does in each round."""

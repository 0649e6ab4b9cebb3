"""Edits of the optimizer's calls, and of updates like them."""

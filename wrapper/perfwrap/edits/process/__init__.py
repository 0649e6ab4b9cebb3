"""Edits of settings of the whole process."""

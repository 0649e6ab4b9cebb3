"""Watchers beside the program; one file each."""

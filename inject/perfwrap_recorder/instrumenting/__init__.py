"""Puts calls of the recorder into torch's functions and methods."""

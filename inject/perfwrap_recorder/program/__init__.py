"""Reads the program's lines, models and tensors without running any of its code."""

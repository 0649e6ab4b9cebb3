"""Readers of recorded formats; each ends in the timeline and knows no consumer."""

SOURCES = ("journal", "kineto", "nvidia_smi", "traceml")
"""The formats that are read, in the order shown to the user; each is the module of that name."""

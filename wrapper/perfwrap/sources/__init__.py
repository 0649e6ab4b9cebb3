"""Readers of recorded formats; each ends in the timeline and knows no consumer."""

SOURCES = (
    "journal",
    "kineto",
    "nsys",
    "nsys_stats",
    "torch_memory",
    "ncu",
    "nvidia_smi",
    "traceml",
    "pyspy",
    "speedscope",
    "collapsed",
)
"""The formats that are read, in the order shown to the user; each is the module of that name.

All but the journal read files that other tools made: ``recognises(path, head)`` says by a file's first bytes whether
it is one of theirs, ``add(builder, path)`` adds it to a timeline.
"""

"""Dataflow windows that the recorder wrote for ``perfwrap inspect``."""

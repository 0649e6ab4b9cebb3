"""Keeps Dynamo from compiling the recorder's own functions. Replaces nothing.

Installed first, since the other probes make functions from the hidden ones.
"""

from __future__ import annotations

from perfwrap_recorder.instrumenting import wrapping


def install(torch):
    """Hide the functions."""
    wrapping.hide_recorder(torch)

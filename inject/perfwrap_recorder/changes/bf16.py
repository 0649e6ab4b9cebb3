"""Calls outermost modules under autocast to bfloat16; see ``perfwrap_recorder.autocasting``."""

from __future__ import annotations

from perfwrap_recorder import autocasting


def install(torch, change):
    """Use bfloat16 where it is fast."""
    autocasting.install(torch, change, torch.bfloat16, ("cuda", "cpu", "xpu"))

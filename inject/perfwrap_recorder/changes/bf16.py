"""Calls outermost modules under autocast to bfloat16; see ``experiments/autocasting.py``."""

from __future__ import annotations

from perfwrap_recorder.experiments import autocasting


def install(torch, change):
    """Use bfloat16 on GPUs that support it."""
    autocasting.install(torch, change, torch.bfloat16, ("cuda", "cpu", "xpu"))

"""Calls outermost modules under autocast to float16; see ``experiments/autocasting.py``.

No gradient scaler is added: if the program has none that is enabled, small gradients vanish, and that is reported.
"""

from __future__ import annotations

from perfwrap_recorder.experiments import autocasting
from perfwrap_recorder.probes.loop import grad_scaler

UNSCALED = "the program has no gradient scaler, without which small gradients vanish in float16"


def install(torch, change):
    """Use float16 on GPUs."""
    if not change.needs_gpu(torch):
        return
    autocasting.install(torch, change, torch.float16, ("cuda", "xpu"))
    change.checks.append(lambda: _look_at_scaler(change))


def _look_at_scaler(change):
    if change.count and not grad_scaler.is_used():
        change.explain(UNSCALED)

"""Calls outermost modules under autocast to float16; see ``perfwrap_recorder.autocasting``.

No gradient scaler is added: where the program has none that is enabled, small gradients vanish, and that is said.
"""

from __future__ import annotations

from perfwrap_recorder import autocasting
from perfwrap_recorder.probes import grad_scaler

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

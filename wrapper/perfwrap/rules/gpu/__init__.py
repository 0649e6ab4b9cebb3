"""Rules about the state of the GPU."""

from __future__ import annotations

from perfwrap.rules.gpu import (
    busy_but_idle_units,
    degraded_link,
    gpu_throttled,
    gpu_use_in_log,
    power_capped,
    shared_gpu,
    utilization_sawtooth,
)
from perfwrap.rules.model import Rule

TITLE = "GPU state"

RULES: tuple[Rule, ...] = (
    gpu_throttled,
    shared_gpu,
    degraded_link,
    busy_but_idle_units,
    utilization_sawtooth,
    power_capped,
    gpu_use_in_log,
)
"""In the order in which they are shown and claim time."""

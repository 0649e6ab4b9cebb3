"""What the monitor's samples say about each GPU during the steady loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One GPU; figures are means over the steady loop, None where not sampled.

    Utilisation is a duty cycle (some kernel ran), never a measure of how well the GPU was used.
    """

    track: int
    name: str
    utilization: float | None
    memory_used_bytes: float | None
    memory_total_bytes: float | None
    power_watts: float | None
    throttled_share: float | None
    throttle_reasons: tuple[str, ...]


def activity_source(gpus: tuple[Gpu, ...]) -> str:
    """Return what stands in for GPU activity: ``samples`` or ``none``."""
    return "samples" if any(gpu.utilization is not None for gpu in gpus) else "none"

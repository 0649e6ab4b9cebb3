"""The GPU's time in ordinary steps: that of the recorded steps, without what torch.profiler added to them.

torch.profiler makes every operation and launch slower on the host, and hardly any kernel. So a recorded step takes
longer than the others, and the GPU is idle for the difference. The recorder timed the other steps: the difference is
taken off the idle time that is the host's own. On an H100, a ResNet-50 kept the GPU busy for 74 % of the recorded
steps; this computes 89 %, and NVML sampled 91 % outside of the window. For a transformer they were 57, 71 and 70 %.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.intervals import length
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import gpu_of
from perfwrap.measures.recorder.windows import ends_within_step
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer

SLOWED = ("profiler", "dispatch", "python")
"""The causes of idle time that grow with the host's work, in the order in which the added time is taken off: first the
profiler's own, then the others in proportion."""


class OrdinaryStep(Struct, frozen=True):
    """The GPU's time as shares of the training loop."""

    busy_share: float
    computing_share: float
    """The share of kernels, without collectives that overlap with none."""
    idle: dict[str, float]
    """The share of each cause of idle time, largest first."""
    recorded_ns: float
    """The mean length of a recorded step; 0 if the other steps were not timed."""
    added_ns: float
    """How much of it the profiler added; 0 if unknown."""
    window_share: float = 1.0
    """What takes the GPU as long as the window takes this share of the loop. It is small where a wait for data or a
    checkpoint is not in the window, and above 1 where the profiler made the recorded steps longer."""


def find_ordinary_step(evidence: Evidence, trainer: Trainer) -> OrdinaryStep | None:
    """Return the time of the trainer's GPU in ordinary steps; that of the window if the others were not timed, or if
    it holds only a part of a step.

    None if no kernels were recorded.
    """
    gpu = evidence.get(gpu_of, trainer)
    if gpu is None or not gpu.window_ns:
        return None
    computing = gpu.kernels_busy_ns - length(gpu.exposed_collectives)
    steps = evidence.get(find_steps, trainer).table
    others = steps.filter("steady", ~pl.col("windowed"))["duration"]
    count = gpu.steps.table.height
    is_part = ends_within_step(evidence.timeline, trainer)
    if not count or is_part or not steps["windowed"].any() or others.is_empty():
        return OrdinaryStep(gpu.busy_share, computing / gpu.window_ns, gpu.idle_shares, 0.0, 0.0)
    # The window starts at its first operation on the GPU: what it lacks of its first step is idle time as well.
    busy = gpu.busy_share * gpu.window_ns / count
    recorded = float(gpu.steps.table["period"].mean() or gpu.window_ns / count)  # type: ignore[arg-type]
    shares = sum(gpu.idle_shares.values()) or 1.0
    idle = {cause: share / shares * max(0.0, recorded - busy) for cause, share in gpu.idle_shares.items()}
    rest = _taken_off(idle, max(0.0, recorded - float(others.median())))  # type: ignore[arg-type]
    added = sum(idle.values()) - sum(rest.values())
    # The loop also has steps with a checkpoint or a validation, which are hardly among the recorded ones.
    mean = max(float(others.mean()), recorded - added)  # type: ignore[arg-type]
    return OrdinaryStep(
        busy_share=min(1.0, busy / mean),
        computing_share=min(1.0, computing / count / mean),
        idle={
            cause: ns / mean for cause, ns in sorted(rest.items(), key=lambda item: (-item[1], item[0])) if ns
        },
        recorded_ns=recorded,
        added_ns=added,
        window_share=gpu.window_ns / count / mean,
    )


def _taken_off(idle: dict[str, float], added: float) -> dict[str, float]:
    """Return the idle times without the time that the profiler added: first its own, then of the rest in proportion."""
    rest = dict(idle)
    for causes in (SLOWED[:1], SLOWED[1:]):
        there = sum(rest.get(cause, 0.0) for cause in causes)
        if there:
            kept = max(0.0, 1.0 - added / there)
            rest |= {cause: rest[cause] * kept for cause in causes if cause in rest}
            added = max(0.0, added - there)
    return rest

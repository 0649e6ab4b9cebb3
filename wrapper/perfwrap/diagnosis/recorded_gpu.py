"""The verdict that a record of GPU kernels gives where no finding gives one: whether the GPU was busy, and with
what."""

from __future__ import annotations

from perfwrap import units
from perfwrap.diagnosis.model import Verdict
from perfwrap.measures.account.intervals import length
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity, busiest_gpu, find_gpu_activity, gpu_of
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules.kernel_record import MIN_KERNELS, most_kernels, window
from perfwrap.rules.transfers.gpu_waits_for_host import meanwhile

BUSY_SHARE = 0.5
"""Share of the time from which computing kernels are the larger part, and the GPU's work limits the loop."""
MIN_IDLE_KERNELS = 10
"""Kernels from which a GPU that is mostly idle is called so: that needs fewer than a statement on the kernels."""
MAX_CAUSES = 3
MIN_CAUSE_SHARE = 0.02
"""Share of the time from which a cause of idle time is named, of at most MAX_CAUSES."""


def judge_gpu(evidence: Evidence) -> Verdict | None:
    """Return the verdict on the recorded GPU of the main trainer, else of the busiest GPU.

    None if no GPU was recorded. Its sentence has no words for the verdict in front.
    """
    main = evidence.get(find_main_trainer)
    own = evidence.get(gpu_of, main) if main is not None else None
    gpu = own or evidence.get(busiest_gpu)
    if gpu is None:
        return None
    kernels = gpu.count("kernel")
    if kernels < (MIN_KERNELS if gpu.busy_share >= BUSY_SHARE else MIN_IDLE_KERNELS):
        return _unknown(_too_few(gpu, kernels))
    step = evidence.get(find_ordinary_step, main) if main is not None and own is not None else None
    busy = step.busy_share if step else gpu.busy_share
    computing = (gpu.kernels_busy_ns - length(gpu.exposed_collectives)) / gpu.window_ns
    computing = step.computing_share if step else computing
    idle = step.idle if step else gpu.idle_shares
    beside = [each.busy_share for each in evidence.get(find_gpu_activity) if each is not gpu]
    others = f" (other GPUs: {units.share(min(beside))} to {units.share(max(beside))})" if beside else ""
    words = f"the GPU is busy {units.share(busy)} of the time{others}, in {window(gpu)}{most_kernels(gpu)}"
    if computing >= BUSY_SHARE:
        return Verdict("compute-bound", busy, f"{words}{_idle(idle)}.", "measured")
    if busy < BUSY_SHARE:
        return Verdict("gpu-idle", 1.0 - busy, f"{words}{_idle(idle)}.", "measured")
    return _unknown(f"{words}; computation, copies and communication take similar parts{_idle(idle)}.")


def _too_few(gpu: GpuActivity, kernels: int) -> str:
    """Return that a recording has too few kernels for a verdict, and what it has."""
    if not kernels:
        copies = units.counted(gpu.count("copy"), "copy", "copies")
        sets = units.counted(gpu.count("memset"), "memory set")
        return f"no kernel was recorded on {gpu.device}, only {copies} and {sets}."
    return (
        f"only {units.counted(kernels, 'kernel')} of {gpu.device} were recorded, too few for a verdict. "
        f"It was busy {units.share(gpu.busy_share)} of {units.duration(gpu.window_ns)}{_idle(gpu.idle_shares)}."
    )


def _idle(idle: dict[str, float]) -> str:
    """Return the largest causes of idle time, as the end of a sentence."""
    named = [
        f"{units.share(share)} {meanwhile(cause)}"
        for cause, share in sorted(idle.items(), key=lambda item: -item[1])[:MAX_CAUSES]
        if share >= MIN_CAUSE_SHARE
    ]
    return f"; it is idle {', '.join(named)}" if named else ""


def _unknown(reason: str) -> Verdict:
    """Return a result without a verdict."""
    return Verdict("unknown", None, reason, "none")

"""How busy the GPUs of a log were, where nothing else was recorded.

What it finds
    In a log of GPU utilization (nvidia-smi, dmon) without a record of the program: whether the GPUs were busy while
    they worked, how long they had nothing to do before and after, and GPUs that did nothing at all.

Why it costs
    A GPU that is idle for a part of the time waits for the host, for data or for other GPUs, or its job has ended.

How the gain is estimated
    No gain is claimed: a log does not show what a GPU waits for. The share is the idle part of the log.

How to fix
    Record the program (`perfwrap run`), which names what the GPU waits for. If the job has ended, release the GPU.

When it is wrong
    Utilization is a duty cycle: the share of time in which some kernel runs, however small. Samples that are seconds
    apart miss short pauses.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.log_use import GpuUse, find_log_use
from perfwrap.rules.model import SHARE, Answer, Finding, NotChecked, Option, Scope
from perfwrap.rules.recordings import NO_RECORDING, is_imported, leave_training

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_samples: int = 10
    """Samples of a GPU that are enough."""
    busy_share: float = 0.90
    """Mean utilization between the first and the last work from which a GPU counts as busy."""
    named_idle_share: float = 0.10
    """Share of the log from which idle time before and after the work is named."""


check = leave_training


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Describe the use of all GPUs of the log."""
    if not is_imported(evidence):
        return NO_RECORDING
    uses = [use for use in evidence.get(find_log_use) if use.samples >= limits.min_samples]
    if not uses:
        return NotChecked(f"Needs {limits.min_samples} samples of GPU utilization (nvidia-smi, dmon).")
    working = [use for use in uses if use.work_share is not None]
    if not working:
        title = f"{_gpus(uses)} did nothing in {SHARE} of the samples."
        return [_finding(title, 1.0, uses, "gpu-idle", limits)]
    inside = sum(use.work_share or 0.0 for use in working) / len(working)
    if inside >= limits.busy_share:
        ends = _ends(working, limits)
        title = f"{_gpus(working)} worked at {SHARE} utilization from the first to the last work{ends}."
        return [_finding(title, inside, uses, "compute-bound", limits)]
    idle = 1.0 - inside
    title = f"{_gpus(working)} had nothing to do {SHARE} of the time between the first and the last work."
    return [_finding(title, idle, uses, "gpu-idle", limits)]


def _finding(title: str, share: float, uses: Sequence[GpuUse], verdict: str, limits: Limits) -> Finding:
    """Return the finding about all GPUs."""
    is_busy = verdict == "compute-bound"
    record = Option(
        "Record the program with `perfwrap run`, which shows "
        + ("what its kernels do." if is_busy else "what the GPU waits for."),
        (1.0, 1.0),
    )
    release = Option("Release GPUs whose work has ended, or that never work.", (1.0, 1.0))
    unused = any(use.work_share is None for use in uses) or bool(_ends(uses, limits))
    return Finding(
        title=title,
        share=share,
        evidence=(*_words(uses), *_never(uses)),
        options=(record, release) if unused else (record,),
        verdict=verdict,
        scope=Scope.RECORDING,
        informational=is_busy,
    )


def _gpus(uses: Sequence[GpuUse]) -> str:
    """Return e.g. ``8 GPUs`` or the name of the only one."""
    return uses[0].gpu.name if len(uses) == 1 else f"{units.count(len(uses))} GPUs"


def _ends(uses: Sequence[GpuUse], limits: Limits) -> str:
    """Return how long the GPUs were idle before and after their work, if that is much of the log."""
    texts = []
    for what, times in (
        ("before", [use.before_ns for use in uses]),
        ("after", [use.after_ns for use in uses]),
    ):
        idle = sum(times) / len(times)
        if idle and idle >= limits.named_idle_share * uses[0].span_ns:
            texts.append(f"{units.duration(idle)} {what}")
    return f"; idle {' and '.join(texts)}" if texts else ""


def _words(uses: Sequence[GpuUse]) -> tuple[str, ...]:
    """Return how idle the samples are, and the power."""
    idle = sum(use.idle_share * use.samples for use in uses) / sum(use.samples for use in uses)
    longest = max(use.longest_idle_ns for use in uses)
    words = [
        f"{units.share(idle)} of the samples are idle (below 10 %); the longest idle time is "
        f"{units.duration(longest)}."
    ]
    watts = [use.top_watts for use in uses if use.top_watts is not None]
    if watts:
        words.append(f"The highest power is {units.number(max(watts), 3)} W.")
    return tuple(words)


def _never(uses: Sequence[GpuUse]) -> tuple[str, ...]:
    """Return which GPUs never worked, beside others that did."""
    never = [use.gpu.name for use in uses if use.work_share is None]
    if not never or len(never) == len(uses):
        return ()
    return (f"{', '.join(never[:4])} never worked.",)

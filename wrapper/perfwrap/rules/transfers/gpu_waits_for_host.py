"""The GPU is idle for reasons that no other rule reports; the host's longest work meanwhile is named.

What it finds
    In a record of the GPU's kernels: at least 10 % of the time in which the GPU was idle, without the idle time that
    other rules report (waits for data, launches, exposed copies, allocations and so on). It names the causes, and the
    ranges (NVTX, record_function), functions and CUDA calls in which the host was during most of that idle time.

Why it costs
    A GPU without work makes the step longer. A blocking cudaMemcpyAsync (from or to pageable memory) or
    cudaStreamSynchronize keeps the host from launching the next work in time.

How the gain is estimated
    Estimated: at best all of that idle time disappears, at worst half of it; nothing is promised if the recording does
    not show the host.

How to fix
    Shorten the named work, move it to another thread or process, or start it earlier, so that it overlaps with the
    GPU's work. Read values rarely. Copy from pinned memory with non_blocking=True.

When it is wrong
    In a recording of the first steps, which set up libraries, load kernels and fill caches. If the recording starts or
    ends with a pause of the program. A function that is recorded in detail by a profiler takes longer than without it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.collective_bursts import find_collective_bursts, idle_beside
from perfwrap.measures.kernels.gpu_activity import GpuActivity, busiest_gpu
from perfwrap.measures.kernels.idle_places import IdlePlace, find_idle_places
from perfwrap.measures.kernels.ordinary_step import OrdinaryStep, find_ordinary_step
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import gpu_waits_for_data
from perfwrap.rules.host_sync import explicit_synchronize, host_sync_in_step
from perfwrap.rules.kernel_record import MIN_KERNELS, added_by_profiler, inside, place_name, recorded, window
from perfwrap.rules.loop import (
    checkpoint_stall,
    gc_pause,
    program_profiler,
    python_overhead,
    recompilation,
    validation_share,
)
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, Option, Rule, Scope
from perfwrap.rules.needs import why_missing
from perfwrap.rules.ranks import exposed_communication, small_collectives
from perfwrap.rules.transfers import allocator_retries, exposed_transfer, launch_bound

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_idle_share: float = 0.10
    """Share of the time."""
    max_named: int = 4
    """How many ranges, functions and calls are named."""
    named_cause_share: float = 0.02
    """Share of the time from which a cause is named."""


OTHERS: dict[str, tuple[Rule, ...]] = {
    "data": (gpu_waits_for_data,),
    "dispatch": (launch_bound,),
    "allocation": (allocator_retries,),
    "transfer": (exposed_transfer,),
    "collective": (small_collectives, exposed_communication),
    "sync": (host_sync_in_step, explicit_synchronize),
    "python": (python_overhead,),
    "checkpoint": (checkpoint_stall,),
    "validation": (validation_share,),
    "compile": (recompilation,),
    "gc": (gc_pause,),
    "profiler": (program_profiler,),
}
"""The rules that report idle time of each cause."""

CAUSES = {
    "data": "waits for a batch",
    "sync": "waits for the GPU, and then launches again",
    "transfer": "is in calls that copy between host and GPU",
    "dispatch": "launches kernels",
    "python": "runs Python outside of PyTorch's functions",
    "allocation": "allocates or frees GPU memory",
    "checkpoint": "writes a checkpoint",
    "validation": "validates",
    "collective": "starts collectives",
    "compile": "compiles",
    "gc": "collects garbage",
    "profiler": "works for the profiler",
    "waiting": "is blocked in the system",
    "between_steps": "is between the steps that the program marks",
    "host": "does work that was not recorded",
}
"""What the host does meanwhile, by the cause of the idle time."""
NOT_SHOWN = "for reasons that the recording does not show"
NOT_HOST = {"unknown": NOT_SHOWN, "queued": "although the next work had already been launched"}
"""In place of these words for causes that are not on the host."""

VERDICT_OF = {
    "data": "data-bound",
    "dispatch": "launch-bound",
    "sync": "sync-bound",
    "transfer": "transfer-bound",
    "collective": "communication-bound",
    "python": "python-bound",
    "gc": "python-bound",
    "allocation": "memory-bound",
    "checkpoint": "checkpoint/validation-bound",
    "validation": "checkpoint/validation-bound",
}
"""The verdict by the largest cause; for the others the GPU is idle and the recording does not show what the host
did."""

ALONE_SHARE, MOST_SHARE = 0.9, 0.5
"""Share of the idle time from which its main cause is the only one that is named, and from which it is most of it."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for idle time that no other rule reports."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    step = evidence.get(find_ordinary_step, trainer)
    idle = step.idle if step else {}
    left = {
        cause: share * (1.0 - _beside_collectives(evidence, trainer, gpu, cause))
        for cause, share in idle.items()
        if not _is_reported(evidence, trainer, cause)
    }
    total = sum(left.values())
    if total < limits.min_idle_share:
        return Clear(
            f"The GPU is idle {units.share(sum(idle.values()))} of the time; other rules explain all but "
            f"{units.share(total)}."
        )
    return [_finding(gpu, left, step, limits)]


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Look at the GPU of a recording in which no thread launches work."""
    gpu = evidence.get(busiest_gpu)
    if gpu is None or gpu.count("kernel") < MIN_KERNELS:
        return NotChecked(f"Needs {MIN_KERNELS} kernels of a GPU.")
    total = sum(gpu.idle_shares.values())
    if total < limits.min_idle_share:
        return Clear(f"The GPU is idle {units.share(total)} of the time.")
    return [_finding(gpu, gpu.idle_shares, None, limits)]


def _finding(
    gpu: GpuActivity, left: Mapping[str, float], step: OrdinaryStep | None, limits: Limits
) -> Finding:
    """Return the finding about the idle time that is left, by its causes."""
    total = sum(left.values())
    main = max(left, key=lambda cause: left[cause])
    places = () if gpu.events.clock_is_off else find_idle_places(gpu, [*left])
    whole_ns = gpu.window_ns * sum(share for cause, share in gpu.idle_shares.items() if cause in left)
    return Finding(
        title=f"The GPU is idle {SHARE} of the time{_while(main, left[main] / total, places, whole_ns)}.",
        share=total,
        evidence=(
            f"In {window(gpu)}, it is busy {units.share(step.busy_share if step else gpu.busy_share)}.",
            *added_by_profiler(step),
            *_causes(left, limits),
            *inside(places, whole_ns, limits.max_named),
        ),
        options=_options(main, total, places, whole_ns),
        verdict=VERDICT_OF.get(main, "gpu-idle"),
        confidence="inferred",
        scope=Scope.WINDOW,
    )


def _is_reported(evidence: Evidence, trainer: Trainer, cause: str) -> bool:
    """Return whether another rule reports the idle time of a cause."""
    if cause == "transfer" and not exposed_transfer.counts_idle(evidence, trainer):
        return False
    return any(_finds(rule, evidence, trainer) for rule in OTHERS.get(cause, ()))


def _finds(rule: Rule, evidence: Evidence, trainer: Trainer) -> bool:
    """Return whether a rule has a finding."""
    if any(evidence.get(why_missing, need) is not None for need in rule.NEEDS):
        return False
    return isinstance(rule.check(evidence, trainer, rule.Limits()), list)


def _beside_collectives(evidence: Evidence, trainer: Trainer, gpu: GpuActivity, cause: str) -> float:
    """Return which part of the idle time of a cause is beside many small collectives, if a rule reports these."""
    bursts = evidence.get(find_collective_bursts, gpu)
    known = gpu.idle_shares.get(cause, 0.0)
    if bursts is None or not known or not _finds(small_collectives, evidence, trainer):
        return 0.0
    return min(1.0, idle_beside(gpu, bursts, cause) / gpu.window_ns / known)


def meanwhile(cause: str) -> str:
    """Return what the host does during idle time of a cause: ``while the host compiles``."""
    return NOT_HOST.get(cause) or f"while the host {CAUSES[cause]}"


def _while(main: str, part: float, places: tuple[IdlePlace, ...], whole_ns: float) -> str:
    """Return what the host does meanwhile, and where, as the end of a sentence.

    ``part`` is the share of the main cause, ``whole_ns`` the idle time of all causes.
    """
    what = meanwhile(main)
    lead = " " if part >= ALONE_SHARE else ", mostly " if part >= MOST_SHARE else ", the largest part "
    named = [place for place in places if place.kind in ("range", "function")]
    where = (
        f", most of it in {place_name(named[0])}"
        if named and named[0].idle_ns >= MOST_SHARE * whole_ns
        else ""
    )
    return f"{lead}{what}{where}"


def _causes(left: Mapping[str, float], limits: Limits) -> tuple[str, ...]:
    """Return the causes with their shares, if there are several."""
    named = [
        f"{units.share(share)} {meanwhile(cause)}"
        for cause, share in left.items()
        if share >= limits.named_cause_share
    ]
    return (f"By what the host does meanwhile: {'; '.join(named)}.",) if len(named) > 1 else ()


def _options(main: str, share: float, places: tuple[IdlePlace, ...], whole_ns: float) -> tuple[Option, ...]:
    """Return what to change, by the largest cause; a place is named if most of the idle time is inside it."""
    basis = f"{units.share(share)} of the GPU's time is idle"
    nothing = (1.0, 1.0)
    if main == "queued":
        edit = "Find out what the launched work waits for: another stream, or what the recording lacks."
        return (Option(edit, nothing),)
    chosen = [place for place in places if place.idle_ns >= MOST_SHARE * whole_ns]
    best = next((place for place in chosen if place.kind != "op"), next(iter(chosen), None))
    if main == "unknown" or (main == "host" and best is None):
        return (
            Option(
                "Record what the host does: torch.profiler with ProfilerActivity.CPU, or nsys with "
                "--trace=cuda,nvtx,osrt.",
                nothing,
            ),
        )
    where = f" in {place_name(best)}" if best else ""
    gain = without(share)
    shorten = Option(
        f"Shorten what the host does{where}, or run it in another thread or process, ahead of the GPU.",
        gain,
        basis,
    )
    if main in ("sync", "transfer"):
        return (
            Option(
                f"Do not let the host wait{where}: copy from pinned memory with non_blocking=True, and read values "
                "only every N steps.",
                gain,
                basis,
            ),
            shorten,
        )
    return (shorten,)

"""The GPU is idle while the host launches its kernels.

What it finds
    GPU idle time, in a record of its kernels, while the host was launching work (in the framework or in the driver): at
    least 2 % of the time. The time that torch.profiler added to the recorded steps, compared with the others, is taken
    off. Launches of many small collectives in a row are left out (see small_collectives).

Why it costs
    Each kernel takes the host some 5 to 50 µs of Python, dispatch and driver. If kernels are shorter than that, the GPU
    finishes each before the next one arrives, and a faster GPU does not help.

How the gain is estimated
    Estimated: at best all of that idle time, as with a CUDA graph that launches a whole step at once; at worst half of
    it.

How to fix
    torch.compile, best with mode="reduce-overhead" (CUDA graphs) if shapes do not change; fused or foreach optimizers;
    a larger batch, so that each kernel has more work. Where the program's own code outside the model launches most of
    the work, such as a metric for each class in each step: operations on whole tensors there.

When it is wrong
    In a recording of another profiler: one that records each function slows the host by up to a half and makes this
    share larger than without it. In the first steps the host also loads kernels, which happens only once.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import busiest_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.collective_bursts import find_collective_bursts, idle_beside
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.kernels.idle_places import find_idle_places
from perfwrap.measures.kernels.kernel_marks import of_kernels
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.loop.stacks import OUTSIDE, HotFunction, sampled_computing, sampled_outside
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import HOST_BOUND_SHARE, added_by_profiler, inside, window, with_blame
from perfwrap.rules.levers import Levers, find_levers
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    Scope,
    locate,
    place,
)
from perfwrap.rules.stack_samples import where

NEEDS = ("trainer", "kernels")
MAX_RANGES = 2
"""How many ranges of the program are named."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    tiny_kernel_ns: int = 10 * units.MICROSECOND
    """Kernels shorter than this are too small."""
    many_tiny_share: float = 0.5
    """Share of tiny kernels from which they are mentioned."""
    min_named_share: float = 0.5
    """Share from which the host decides how long a step takes, so that its samples show which line costs most."""
    hot_share: float = 0.5
    """Share of the samples inside the model from which one line is named."""
    min_outside_share: float = 0.5
    """Share of the loop outside the model from which the launches are those of the program's own code there."""
    min_removed_share: float = 0.5
    """Minimum share of the idle time that disappears: compiled steps still launch, but one kernel instead of
    several."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for idle time while the host was launching."""
    gpu = with_blame(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    step = evidence.get(find_ordinary_step, trainer)
    share = launching_share(evidence, trainer, gpu)
    if share < limits.min_reported_share:
        return Clear(f"The GPU waits for launches {units.share(share)} of the time.")
    levers = evidence.get(find_levers, trainer)
    account = evidence.get(find_account, trainer)
    outside = account.shares.get("python", 0.0)
    hot = None
    if outside >= limits.min_outside_share and share >= HOST_BOUND_SHARE:
        hot = _hottest_outside(evidence, trainer, limits)
    is_outside = hot is not None
    if hot is None and share >= limits.min_named_share:
        hot = _hottest(evidence, trainer, limits)
    part = "the program's own code outside the model" if is_outside else "the model"
    return [
        Finding(
            title=f"The GPU is idle {SHARE} of the time while the host launches kernels one by one.",
            share=share,
            evidence=(
                f"In {window(gpu)}.",
                *added_by_profiler(step),
                *_figures(gpu, limits),
                *_ranges(gpu),
                *((f"{units.share(outside)} of the training loop is {part}.",) if is_outside else ()),
                *_named(hot, part),
            ),
            options=_options(hot if is_outside else None, levers, share, limits),
            verdict="launch-bound",
            location=locate(hot[0].line) if hot else None,
            confidence="inferred",
            scope=Scope.WINDOW,
        )
    ]


def launching_share(evidence: Evidence, trainer: Trainer, gpu: GpuActivity) -> float:
    """Return the share of time in which the GPU waits for launches, without those of many small collectives.

    These are one problem with the collectives themselves, which another rule reports.
    """
    step = evidence.get(find_ordinary_step, trainer)
    share = step.idle.get("dispatch", 0.0) if step else 0.0
    bursts = evidence.get(find_collective_bursts, gpu)
    if bursts is None or not gpu.idle_shares.get("dispatch"):
        return share
    beside = idle_beside(gpu, bursts, "dispatch") / gpu.window_ns / gpu.idle_shares["dispatch"]
    return share * max(0.0, 1.0 - beside)


def _hottest(evidence: Evidence, trainer: Trainer, limits: Limits) -> tuple[HotFunction, int] | None:
    """Return the line of the program that launches most of the model's work, and the number of samples there."""
    found = sampled_computing(evidence, trainer, ())
    if found is None or found.source != OUTSIDE:
        return None
    inside = sum(hot.count for hot in found.functions)
    called = busiest_line(evidence.get(find_account, trainer), "forward")
    for hot in found.functions:
        # The line that calls the model has all of its time and says nothing.
        if hot.count >= limits.hot_share * inside and (called is None or _place(hot.line) != _place(called)):
            return hot, inside
    return None


def _place(line: Line) -> tuple[str, int]:
    return line.file, line.line


def _hottest_outside(evidence: Evidence, trainer: Trainer, limits: Limits) -> tuple[HotFunction, int] | None:
    """Return the line of the program outside the model that has most of the samples there."""
    found = sampled_outside(evidence, trainer)
    if found is None or found.source != OUTSIDE or not found.functions:
        return None
    hot = max(found.functions, key=lambda function: function.on_line)
    return (hot, found.count) if hot.on_line >= limits.hot_share * found.count else None


def _named(hot: tuple[HotFunction, int] | None, part: str) -> tuple[str, ...]:
    """Return the sentence about the line that launches most."""
    if hot is None:
        return ()
    return (
        f"{units.share(hot[0].count / hot[1])} of the host's time in {part} is at {where(hot[0])} (sampled by "
        "py-spy).",
    )


def _options(
    outside: tuple[HotFunction, int] | None, levers: Levers, share: float, limits: Limits
) -> tuple[Option, ...]:
    """Return the ways to launch fewer kernels; ``outside`` is the line outside the model that launches most."""
    certain = (1.0 - share, 1.0 - share * limits.min_removed_share)
    unknown = (1.0 - share, 1.0)
    basis = f"{units.share(share)} of the time the GPU waits for launches"
    if outside is not None:
        here = place(outside[0].line, "")
        return (
            Option(
                f"Replace the small operations at {here} by operations on whole tensors: no loops over classes or "
                "samples.",
                certain,
                basis,
                details=f"Most of the step is at {here}, which torch.compile(model) does not reach.",
            ),
            Option(f"Run the code at {here} only every N steps.", unknown),
        )
    others = []
    if not levers.is_fused:
        others.append(Option("Use a fused optimizer (fused=True).", unknown, basis, "fused-optimizer"))
    if levers.can_grow:
        edit = "Use a larger batch: the same launches then do more work."
        others.append(Option(edit, unknown, basis, "find-batch-size"))
    mode = 'mode="reduce-overhead"'
    if levers.is_compiled and not levers.has_graphs:
        edit = f"Compile with {mode}, which launches whole graphs at once."
        others.insert(0, Option(edit, certain, basis))
    elif levers.compiling:
        edit = f"Call torch.compile(model, {mode}), which launches whole graphs at once."
        others.insert(0, Option(edit, certain, basis, "compile=reduce-overhead"))
    return tuple(others) or (
        Option("Replace many small operations by fewer on whole tensors.", unknown, basis),
    )


def _ranges(gpu: GpuActivity) -> tuple[str, ...]:
    """Return the ranges and functions of the program in which most of the launches are."""
    places = [place for place in find_idle_places(gpu, ["dispatch"]) if place.kind in ("range", "function")]
    return inside(places, gpu.idle_shares.get("dispatch", 0.0) * gpu.window_ns or 1.0, MAX_RANGES)


def _figures(gpu: GpuActivity, limits: Limits) -> list[str]:
    """Return the figures that show that the host cannot keep up."""
    launches = gpu.launches
    texts = []
    if launches.kernel_ns is not None and launches.short_share is not None:
        texts.append(
            f"The median kernel takes {units.duration(launches.kernel_ns)}, and the call that launches it takes "
            f"{units.duration(launches.call_ns)} on the host; {units.share(launches.short_share)} of the kernels "
            "are shorter than their launch call."
        )
    steps = gpu.steps.table
    if steps.height:
        per_step = float(steps["kernels"].sum()) / steps.height
        texts.append(f"{units.number(per_step, 3)} kernels are launched per step.")
    tiny = of_kernels(gpu).select((pl.col("ns") < limits.tiny_kernel_ns).mean()).item()
    if tiny is not None and tiny >= limits.many_tiny_share:
        texts.append(
            f"{units.share(tiny)} of the kernels take less than {units.duration(limits.tiny_kernel_ns)}, about as "
            "long as launching one."
        )
    if launches.run_ahead_ns is not None:
        texts.append(
            f"Half of the kernels start within {units.duration(launches.run_ahead_ns)} of their launch, so the host "
            "is rarely further ahead than that."
        )
    return texts

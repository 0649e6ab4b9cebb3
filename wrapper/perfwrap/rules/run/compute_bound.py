"""The model's own work takes nearly all of the time; the loop itself is healthy.

What it finds
    A training loop in which forward pass, backward pass, optimizer and the loss between them take at least 80 %. On a
    GPU the host's account only shows who launched the work; there the mean of the utilization samples must be at least
    90 %, or, if kernels were recorded, they must run at least 80 % of the time of an ordinary step, not counting
    collectives without overlap. An ordinary step is a recorded one without the time that torch.profiler added.

Why it costs
    It costs nothing: there are no waits. To go faster, the work itself must take less time.

How the gain is estimated
    No gain is claimed: nothing is wasted outside that work. For unused attention weights the best case is three
    quarters of the layer's time, with a backward pass as long as its samples; at worst nothing.

How to fix
    An attention layer of torch whose weights the caller drops computes them all the same: pass need_weights=False.
    What to try next: what `perfwrap try` measured of this command, the largest gain first; else more compute threads on
    a CPU with idle cores, a lower precision that the device is fast in, torch.compile, a larger batch, a faster device.
    What is on already is left out, and so is bfloat16 on a processor without instructions for it, and what was measured
    without a gain.

When it is wrong
    When the model does more work than needed: something recomputed in each forward pass, a Python loop over rows inside
    the model, unused gradients. Only a few such patterns have their own rule. If py-spy is installed, it samples the
    process, and the function of the model or the loss with most samples is named, for models on a CPU. This is not a
    judgment: it may be necessary work. Samples of the recorder's own sampler (--sample) are quoted without a line,
    because they miss Python loops. Not checked with several ranks on CPUs, where a backward pass also waits for the
    other ranks.
    On a GPU, utilization is a duty cycle: the time in which some kernel runs, not how much of the GPU it uses. A record
    of kernels shows more, and so do the GPU's own counters from Hopper on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.intervals import length
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import COMPUTE_PARTS, gpu_utilization, trains_on_gpu
from perfwrap.measures.dataflow.line_account import LineAccount, find_line_account
from perfwrap.measures.dataflow.wasted_work import KINDS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.gpu.own_gpus import find_own_gpus
from perfwrap.measures.kernels.gpu_activity import GpuActivity, busiest_gpu
from perfwrap.measures.kernels.ordinary_step import find_ordinary_step
from perfwrap.measures.loop.functional_models import find_model_gaps
from perfwrap.measures.loop.library_calls import LibraryCall
from perfwrap.measures.loop.model_loops import find_model_loop
from perfwrap.measures.loop.python_gaps import find_loss_gaps
from perfwrap.measures.loop.slow_calls import drops_second_result
from perfwrap.measures.loop.stacks import OUTSIDE, HotFunction, Sampled, sampled_computing
from perfwrap.measures.recorder.windows import find_windows
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.kernel_record import (
    MIN_KERNELS,
    added_by_profiler,
    mfu,
    most_kernels,
    recorded,
    units_at_work,
    window,
)
from perfwrap.rules.levers import Levers, find_levers
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, Option, Scope, locate, place
from perfwrap.rules.needs import why_missing
from perfwrap.rules.stack_samples import (
    MAIN_LIBRARY_SHARE,
    join_passes,
    library_name,
    main_library,
    quote_library,
    quote_shares,
    where,
)
from perfwrap.rules.wasted_step import explains

NEEDS = ("trainer",)

FindLoop = Callable[[Line], int | None]
"""Returns the first line of the loop of independent passes around a line."""
DropsSecond = Callable[[Line], bool]
"""Returns whether a line drops the attention weights that it lets torch compute."""


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    compute_share: float = 0.80
    """Share of the loop from which the model's own work dominates."""
    min_sm_share: float = 0.5
    """Share of the time below which multiprocessors are mostly idle, if the GPU reports it: then it is not healthy."""
    busy_utilization: float = 0.90
    """Mean sampled utilization from which a GPU counts as busy."""
    named_loss_share: float = 0.005
    """Share of the loop from which the title names the loss, which the account shows as ``python``."""
    hot_share: float = 0.15
    """Share of the samples from which a line inside the model is named."""
    main_share: float = 0.5
    """Share of the samples from which the title names a function."""
    attention_share: float = 0.05
    """Share of the samples from which unused attention weights are named."""
    max_attention_saved: float = 0.75
    """Part of an attention layer's time that is saved at best without its weights (measured: 62 % of a step in which it
    was 80 %)."""


MAX_NAMED_LINES = 3
ATTENTION = ("MultiheadAttention.forward", "multi_head_attention_forward")
"""torch's functions that compute attention."""
LAYERS = ("forward",)
"""How the names of layers' functions end."""
NO_WASTE = "`perfwrap inspect` found no waste in these lines that it can prove; there may be other."
HAS_WASTE = "First remove the wasted work that other findings name."
NOT_JUDGED = "The loop has no avoidable waits; perfwrap does not judge the work of the model itself."
NO_HOTSPOT = "No single function in the model or loss stands out in the stack samples."
FEW_SAMPLES = "Too few stack samples inside the model or loss."
NOT_SAMPLED = (
    "Forward and backward pass were not sampled; install py-spy to see the hottest lines of model and loss."
)


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check whether the model's own work takes nearly all of the time."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, GpuActivity):
        return _in_kernels(evidence, trainer, gpu, limits)
    few = evidence.get(why_missing, "steady_steps")
    if few is not None:
        return NotChecked(few)
    if trains_on_gpu(evidence, trainer):
        return _on_gpu(evidence, trainer, limits)
    if len(evidence.get(find_trainers)) > 1 and trainer.rank is not None:
        return NotChecked(
            "With several ranks, the backward pass also waits for other ranks; its length needs a record of "
            "their collectives."
        )
    account = evidence.get(find_account, trainer)
    losses = tuple(
        dict.fromkeys((*evidence.get(find_loss_gaps, trainer), *evidence.get(find_model_gaps, trainer)))
    )
    loss = sum(gap.share for gap in losses)
    compute = sum(account.shares[part] for part in COMPUTE_PARTS) + loss
    if compute < limits.compute_share:
        return Clear(f"The model's own work takes {units.share(compute)} of the loop.")
    parts = ", ".join(
        f"{part} {units.share(account.shares[part])}"
        for part in COMPUTE_PARTS
        if part != "recompute" or account.ns[part]
    )
    what = (
        "tensor work outside modules"
        if evidence.get(find_model_gaps, trainer)
        else "the loss and other code between forward and backward"
    )
    words = f"{parts}; {what} {units.share(loss)}."
    levers = evidence.get(find_levers, trainer)
    lines = evidence.get(find_line_account, trainer)
    found = _finding(levers, compute, words if lines is not None else f"{words} {NOT_JUDGED}")
    if loss >= limits.named_loss_share:
        found = replace(found, title=f"{SHARE} of the training loop is model work and the loss.")
    # If another rule blames the loss, that time is not healthy: it belongs to one of them only.
    found = replace(found, claims=reduce(or_, (gap.segments for gap in losses), _at_work()))
    if lines is not None:
        return [_of_inspected(found, lines, explains(evidence, trainer, KINDS))]
    sampled = sampled_computing(evidence, trainer, losses)
    if sampled is not None:
        # With several training threads each may have another hottest line, and shared ones would be repeated.
        is_only = len(evidence.get(find_trainers)) == 1
        return [
            _with_lines(
                found,
                levers,
                sampled,
                is_only,
                limits,
                partial(find_model_loop, evidence, trainer),
                partial(_drops_weights, evidence),
            )
        ]
    if evidence.get(why_missing, "stacks") is None:
        return [replace(found, evidence=(*found.evidence, FEW_SAMPLES))]
    if find_windows(evidence.timeline, trainer)[0].size:
        return [found]
    return [replace(found, evidence=(*found.evidence, NOT_SAMPLED), rerun_options="--py-spy")]


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Look at the GPU of a recording in which no thread launches work."""
    gpu = evidence.get(busiest_gpu)
    if gpu is None or gpu.count("kernel") < MIN_KERNELS:
        return NotChecked(f"Needs {MIN_KERNELS} kernels of a GPU.")
    computing = (gpu.kernels_busy_ns - length(gpu.exposed_collectives)) / gpu.window_ns
    if computing < limits.compute_share:
        return Clear(f"GPU kernels computed {units.share(computing)} of the time.")
    found = _finding(Levers(), computing, f"In {window(gpu)}. {NOT_JUDGED}", "GPU busy: ")
    title = f"GPU busy: kernels computed {SHARE} of the time{most_kernels(gpu)}."
    return [replace(found, title=title, claims=None, scope=Scope.WINDOW)]


def _drops_weights(evidence: Evidence, line: Line) -> bool:
    """Return whether a line calls an attention layer, with its weights, and drops them."""
    return drops_second_result(evidence.timeline.run, line.file, line.line, "need_weights")


def _of_inspected(found: Finding, account: LineAccount, has_waste: bool) -> Finding:
    """Return the finding with the costliest lines of a step whose operations were recorded."""
    known = [cost for cost in account.lines if cost.line.file][:MAX_NAMED_LINES]
    if not known:
        return found
    named = ", ".join(f"{units.share(account.share(cost))} at {place(cost.line, '')}" for cost in known)
    return replace(
        found,
        evidence=(
            *found.evidence,
            f"Of a step, forward and backward together: {named}. {HAS_WASTE if has_waste else NO_WASTE}",
        ),
        location=locate(known[0].line),
    )


def _with_lines(
    found: Finding,
    levers: Levers,
    sampled: Sampled,
    is_only: bool,
    limits: Limits,
    find_loop: FindLoop,
    drops: DropsSecond,
) -> Finding:
    """Return the finding with the lines of the model and the loss that have most samples, if any stands out."""
    hot = [each for each in sampled.functions if each.count >= limits.hot_share * sampled.count]
    hottest = next((each for each in hot if not _calls_layers(each)), next(iter(hot), None))
    if hottest is None:
        passed = [line for line in sampled.common if line.count >= limits.hot_share * sampled.count]
        if passed and sampled.source == OUTSIDE:
            return _through(found, levers, passed, sampled, is_only, find_loop)
        return replace(found, evidence=(*found.evidence, NO_HOTSPOT))
    if sampled.source != OUTSIDE:
        # A Python loop of less than 5 ms has no samples: they are on the next torch line.
        return replace(found, evidence=(*found.evidence, quote_shares(sampled)), rerun_options="--py-spy")
    loop = find_loop(hottest.line)
    library = main_library(hottest)
    at = place(hottest.line, "")
    if loop is not None:
        advice = join_passes(hottest, loop)
    elif _calls_layers(hottest):
        advice = ""
    elif library is not None:
        advice = f"Check how often {at} calls {library_name(library)}, and for which sizes."
    else:
        advice = f"See whether {at} computes something constant, twice or unused: perfwrap inspect."
    checked = (_to_check(advice, levers),) if advice else ()
    if hottest.count >= limits.main_share * sampled.count and not _calls_layers(hottest):
        found = replace(
            found, title=f"{found.title.removesuffix('.')}, most of it at {place(hottest.line, '')}."
        )
    weights = _without_weights(sampled, drops, limits)
    return replace(
        found,
        evidence=(*found.evidence, quote_shares(sampled), *quote_library(hottest)),
        options=(*weights, *checked, *levers.options),
        confidence="inferred" if weights else found.confidence,
        location=locate(hottest.line) if is_only else None,
    )


def _without_weights(sampled: Sampled, drops: DropsSecond, limits: Limits) -> tuple[Option, ...]:
    """Return the option to let attention layers not compute the weights that their caller drops."""
    named = [each for each in sampled.functions if _is_attention(each) and drops(each.line)]
    share = sum(each.on_line for each in named) / sampled.count
    if share < limits.attention_share:
        return ()
    lines = ", ".join(place(each.line, "") for each in named[:MAX_NAMED_LINES])
    # Its backward pass comes on top of the samples, and takes about as long.
    best = 1.0 - limits.max_attention_saved * min(1.0, 2.0 * share)
    return (
        Option(
            f"Pass need_weights=False to the MultiheadAttention at {lines}, whose weights nothing uses: torch then "
            "computes it in one operation.",
            (best, 1.0),
            f"{units.share(share)} of the samples",
        ),
    )


def _is_attention(hot: HotFunction) -> bool:
    """Return whether most of a line's time is in torch's attention layer."""
    main = _main_of_line(hot)
    return main is not None and main.package == "torch" and main.function in ATTENTION


def _to_check(advice: str, levers: Levers) -> Option:
    """Return the option to look at a line."""
    return Option(advice, (1.0, 1.0), experiment=levers.options[0].experiment)


def _calls_layers(hot: HotFunction) -> bool:
    """Return whether a line spends its time in layers of a library or in derivatives, which are hardly the waste."""
    main = _main_of_line(hot)
    return main is not None and (main.derives or main.function.endswith(LAYERS))


def _main_of_line(hot: HotFunction) -> LibraryCall | None:
    """Return the library function that a line spends most of its time in; None if none is."""
    library = hot.library
    return library.main if library is not None and library.count >= MAIN_LIBRARY_SHARE * hot.on_line else None


def _through(
    found: Finding,
    levers: Levers,
    passed: Sequence[HotFunction],
    sampled: Sampled,
    is_only: bool,
    find_loop: FindLoop,
) -> Finding:
    """Return the finding with a line of a module that most of its work passes, though no inner function stands out.

    It is the outermost one that is in a loop, else the deepest one.
    """
    loops = [(hot, find_loop(hot.line)) for hot in passed]
    hot, loop = next((pair for pair in loops if pair[1] is not None), loops[-1])
    words = (
        f"{units.share(hot.count / sampled.count)} of the samples of the training thread "
        f"({units.count(sampled.count)}, by py-spy) pass {where(hot)}, which calls the rest; no function inside stands "
        "out. Its backward pass comes on top."
    )
    advice = f"Check what {place(hot.line, '')} calls, and how often."
    return replace(
        found,
        evidence=(*found.evidence, words),
        options=(_to_check(advice if loop is None else join_passes(hot, loop), levers), *levers.options),
        location=locate(hot.line) if is_only else None,
    )


def _in_kernels(evidence: Evidence, trainer: Trainer, gpu: GpuActivity, limits: Limits) -> Answer:
    """Decide from the record of GPU kernels."""
    step = evidence.get(find_ordinary_step, trainer)
    computing = step.computing_share if step else 0.0
    if computing < limits.compute_share:
        return Clear(f"GPU kernels computed {units.share(computing)} of the time.")
    words = f"In {window(gpu)}; this does not show how much of the GPU each kernel uses. {NOT_JUDGED}"
    found = _finding(evidence.get(find_levers, trainer), computing, words, "GPU busy: ")
    return [
        replace(
            found,
            title=f"GPU busy: kernels computed {SHARE} of the time{most_kernels(gpu)}.",
            evidence=(
                *found.evidence,
                *added_by_profiler(step),
                mfu(evidence, gpu),
                *units_at_work(evidence, trainer),
            ),
            scope=Scope.WINDOW,
        )
    ]


def _on_gpu(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Decide from the samples of GPU utilization."""
    utilization = gpu_utilization(evidence)
    if utilization is None:
        return NotChecked("Needs GPU utilization (run with monitors) or a record of its kernels.")
    if utilization < limits.busy_utilization:
        return Clear(f"The GPU was busy in {units.share(utilization)} of the samples.")
    working = [gpu.activity["sm"] for gpu in evidence.get(find_own_gpus, trainer) if "sm" in gpu.activity]
    if working and max(working) < limits.min_sm_share:
        return Clear(
            f"Some kernel ran in {units.share(utilization)} of the samples, but the GPU's multiprocessors were active "
            f"only {units.share(max(working))} of the time."
        )
    words = f"Utilization is a duty cycle: the share of time in which any kernel runs. {NOT_JUDGED}"
    found = _finding(evidence.get(find_levers, trainer), utilization, words, "GPU busy: ")
    return [replace(found, evidence=(*found.evidence, *units_at_work(evidence, trainer)))]


def _finding(levers: Levers, share: float, words: str, prefix: str = "") -> Finding:
    """Return the finding that the model's own work dominates."""
    what = "of the samples a kernel was running" if prefix else "of the training loop is model work"
    return Finding(
        title=f"{prefix}{SHARE} {what}.",
        share=share,
        evidence=(words,),
        options=levers.options,
        verdict="compute-bound",
        claims=_at_work(),
        informational=True,
    )


def _at_work() -> pl.Expr:
    """Select the segments of the account in which the model itself works."""
    return pl.col("part").is_in([*COMPUTE_PARTS])

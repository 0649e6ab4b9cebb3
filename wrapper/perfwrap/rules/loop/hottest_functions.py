"""Where the samples of a call-stack recording are, where nothing else was recorded.

What it finds
    In a recording of py-spy or another sampler without a record of the program: the thread that is most at work, and
    its functions of the program with most samples; or that it mostly waits, and where.

Why it costs
    A function with most of the samples takes most of the time of its thread.

How the gain is estimated
    No gain is claimed: the share is that of the thread's samples, and the samples do not show what is needed.

How to fix
    Compute less often what does not change, replace loops by operations on whole arrays, use several processes. Where
    the thread waits for others, make those faster.

When it is wrong
    Samplers that need the GIL miss code that holds it. Recordings with few samples, or of the start of a program only.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.stacks import HotFunction
from perfwrap.measures.run.sampled_threads import SampledThread, find_sampled_threads
from perfwrap.rules.model import SHARE, Answer, Finding, NotChecked, Option, Scope, locate
from perfwrap.rules.recordings import NO_RECORDING, is_imported, leave_training
from perfwrap.rules.stack_samples import quote_library, where

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    waiting_share: float = 0.5
    """Share of the samples of the thread that is most at work from which it mostly waits."""
    named_share: float = 0.05
    """Share of the samples from which another function is named."""
    max_named: int = 4
    """How many functions and threads are named."""


check = leave_training


def check_run(evidence: Evidence, limits: Limits) -> Answer:
    """Name the functions with most samples."""
    if not is_imported(evidence):
        return NO_RECORDING
    threads = evidence.get(find_sampled_threads)
    if not threads:
        return NotChecked("Needs call stacks (py-spy, speedscope, collapsed stacks).")
    thread = threads[0]
    waits = thread.waiting >= limits.waiting_share * thread.count
    functions = thread.waits if waits else thread.works
    if functions is None or not functions.functions:
        return NotChecked("The stacks contain no function of the program itself.")
    hot = functions.functions[0]
    share = (thread.waiting if waits else hot.count) / thread.count
    title = (
        f"{thread.name} waits in {SHARE} of its {units.counted(thread.count, 'sample')}, mostly in {where(hot)}."
        if waits
        else f"{SHARE} of the {units.counted(thread.count, 'sample')} of {thread.name} are in {where(hot)}."
    )
    return [
        Finding(
            title=title,
            share=share,
            evidence=(
                *_functions("Next", functions.functions[1:], thread, limits),
                *(
                    _functions("At work", thread.works.functions, thread, limits)
                    if waits and thread.works
                    else ()
                ),
                *quote_library(hot),
                *_phases(thread),
                *_others(threads, limits),
            ),
            options=_options(hot, waits),
            verdict="sync-bound" if waits else "python-bound",
            location=locate(hot.line),
            scope=Scope.RECORDING,
        )
    ]


def _functions(
    what: str, functions: Sequence[HotFunction], thread: SampledThread, limits: Limits
) -> tuple[str, ...]:
    """Return the functions with many samples of the thread in one sentence."""
    named = [
        f"{where(other)} {units.share(other.count / thread.count)}"
        for other in functions[: limits.max_named]
        if other.count >= limits.named_share * thread.count
    ]
    return (f"{what}: {', '.join(named)}.",) if named else ()


def _phases(thread: SampledThread) -> tuple[str, ...]:
    """Return the shares of PyTorch's phases, if there are any."""
    named = [f"{phase} {units.share(count / thread.count)}" for phase, count in thread.phases.items()]
    return (f"In PyTorch's phases: {', '.join(named[:4])}.",) if named else ()


def _others(threads: tuple[SampledThread, ...], limits: Limits) -> tuple[str, ...]:
    """Return the other threads that mostly wait."""
    named = [
        f"{thread.name} {units.share(thread.waiting / thread.count)}"
        for thread in threads[1:]
        if thread.waiting >= limits.waiting_share * thread.count
    ]
    return (f"Other threads that mostly wait: {', '.join(named[: limits.max_named])}.",) if named else ()


def _options(hot: HotFunction, waits: bool) -> tuple[Option, ...]:
    """Return what to do about the function."""
    nothing = (1.0, 1.0)
    if waits:
        return (
            Option(f"Make what {where(hot)} waits for faster, or work on something else meanwhile.", nothing),
        )
    return (
        Option(
            f"Make {where(hot)} cheaper: compute what does not change once, or replace its loops by operations on "
            "whole arrays.",
            nothing,
        ),
        Option("Divide its work among several processes.", nothing),
    )

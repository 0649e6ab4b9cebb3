"""Whether code of the training loop runs in few long visits or in each step, from py-spy's samples.

Samples of code that runs in each step are spread over all samples of the loop. Those of a plot in each 300th step come
in few runs: samples that follow each other in time.
"""

from __future__ import annotations

from collections.abc import Container

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.loop_figures import mean_step_ns
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import FRAME
from perfwrap.measures.loop.section_frames import is_same_function
from perfwrap.measures.loop.stacks import ENOUGH, OUTSIDE, functions_of_loop
from perfwrap.measures.trainers import Trainer

MAX_RUNS_SHARE = 1 / 3
"""Part of the runs that samples in a random order would have, up to which they are visits."""
MIN_EVERY_STEPS = 3.0
"""Mean distance of the visits, in steps, from which they are rare."""


class RareVisits(Struct, frozen=True):
    """The visits of some code: about how many, how long each takes, and once in how many steps."""

    count: int
    each_ns: float
    every_steps: float


def visits_of_lines(
    evidence: Evidence, trainer: Trainer, lines: frozenset[tuple[str, int]]
) -> RareVisits | None:
    """Return the visits of lines (file, line), None if they are not rare or there are too few samples."""
    rows = _loop_samples(evidence, trainer)
    keys = zip(rows["file"].to_list(), rows["line"].to_list(), strict=True)
    return _visits(evidence, trainer, [key in lines for key in keys])


def visits_of_function(evidence: Evidence, trainer: Trainer, file: str, function: str) -> RareVisits | None:
    """Return the visits of a function and what it calls, None if they are not rare or there are too few samples.

    None too for a function that the training loop is in.
    """
    if (file, function) in evidence.get(functions_of_loop, trainer):
        return None
    rows = _loop_samples(evidence, trainer)
    inside = {stack for stack in rows["stack"].unique().to_list() if stack and _passes(stack, file, function)}
    return _visits(evidence, trainer, _is_in(rows["stack"].to_list(), inside))


def _is_in(values: list[str | None], found: Container[str]) -> list[bool]:
    return [value is not None and value in found for value in values]


def _passes(stack: str, file: str, function: str) -> bool:
    """Return whether a frame of the stack is in the function."""
    return any(
        frame["file"] == file and is_same_function(frame["function"], function)
        for frame in FRAME.finditer(stack)
    )


def _loop_samples(evidence: Evidence, trainer: Trainer) -> pl.DataFrame:
    """Return py-spy's samples of the training thread in the steady loop, in order of time."""
    account = evidence.get(find_account, trainer)
    return evidence.timeline.stacks.filter(
        pl.col("time").is_between(account.start, account.end, closed="left"),
        pl.col("track") == trainer.thread,
        pl.col("source") == OUTSIDE,
    ).sort("time", maintain_order=True)


def _visits(evidence: Evidence, trainer: Trainer, inside: list[bool]) -> RareVisits | None:
    """Return the visits from the samples in order of time: which of them are inside."""
    count = sum(inside)
    if count < ENOUGH:
        return None
    runs = sum(here and not before for here, before in zip(inside, [False, *inside], strict=False))
    share = count / len(inside)
    if runs > MAX_RUNS_SHARE * count * (1.0 - share):
        return None
    account = evidence.get(find_account, trainer)
    step_ns = mean_step_ns(evidence, trainer)
    every = account.total_ns / step_ns / runs if step_ns else 0.0
    return RareVisits(runs, share * account.total_ns / runs, every) if every >= MIN_EVERY_STEPS else None

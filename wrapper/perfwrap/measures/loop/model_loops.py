"""Loops inside the model or the loss whose passes do not depend on each other."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl

from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.library_calls import FRAME
from perfwrap.measures.loop.source_calls import independent_loop, loop_around
from perfwrap.measures.trainers import Trainer

OF_A_STEP = ("data", "backward", "optimizer", "zero_grad")
"""Operations that are in the training loop itself, not in the model or the loss."""


def find_model_loop(evidence: Evidence, trainer: Trainer, line: Line) -> int | None:
    """Return the first line of the loop around a line of the model or the loss; None without one.

    A loop that gets batches, computes gradients or updates parameters is the training loop or a part of it.
    """
    return _outside_steps(
        evidence, trainer, line, independent_loop(evidence.timeline.run, line.file, line.line)
    )


def find_any_loop(evidence: Evidence, trainer: Trainer, line: Line) -> int | None:
    """Return the same of any loop, also one over modules, of whose passes the operations show what they depend on."""
    return _outside_steps(evidence, trainer, line, loop_around(evidence.timeline.run, line.file, line.line))


def _outside_steps(
    evidence: Evidence, trainer: Trainer, line: Line, loop: tuple[int, int] | None
) -> int | None:
    """Return the first line of a loop, if it is neither the training loop nor a part of it."""
    if loop is None:
        return None
    first, last = loop
    inside = any(first <= number <= last for number in evidence.get(_lines_of_steps, trainer, line.file))
    return None if inside else first


def _lines_of_steps(evidence: Evidence, trainer: Trainer, file: str) -> frozenset[int]:
    """Return the lines of a file on which the training thread does what only the training loop does."""
    timeline = evidence.timeline
    spans = timeline.spans.filter(pl.col("track") == trainer.thread, pl.col("operation").is_in(OF_A_STEP))
    called = spans.filter(pl.col("file") == file)["line"].drop_nulls().unique().to_list()
    samples = timeline.stacks.filter(pl.col("track") == trainer.thread, pl.col("operation").is_in(OF_A_STEP))
    return frozenset(called).union(_lines_in(samples["stack"].unique().to_list(), file))


def _lines_in(stacks: Iterable[str], file: str) -> set[int]:
    """Return the lines of a file in stacks."""
    return {
        int(frame["line"]) for stack in stacks for frame in FRAME.finditer(stack) if frame["file"] == file
    }

"""Ranks that started several times in the same run.

A launcher restarts them after a failure (torchrun with --max-restarts), or a program starts them again on purpose: one
``mp.spawn`` for each fold of a cross-validation.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import RESTARTS, Trainer, find_trainers
from perfwrap.timeline.coverage import RECORDER


class Restart(Struct, frozen=True):
    """One start of the ranks that followed another one."""

    start: int
    """The number of the new start, from 2."""
    ranks: int
    """How many ranks it has."""
    first: Trainer | None
    """The rank whose process ended first by itself in the previous start; None if all or none were killed."""
    steps: int
    """The steps of the previous start, of the rank with most."""
    gap_ns: int
    """From the last step of the previous start to the start of the first step of this one, of any rank."""
    after_failure: bool
    """Whether the launcher says that it restarted, or a part of the previous start's processes was killed."""


def find_restarts(evidence: Evidence) -> tuple[Restart, ...]:
    """Return each start that followed another one with recorded steps, in order."""
    starts: dict[int, list[Trainer]] = {}
    for trainer in evidence.get(find_trainers):
        if trainer.rank is not None and evidence.get(find_steps, trainer).count:
            starts.setdefault(trainer.start, []).append(trainer)
    order = sorted(starts)
    return tuple(
        _restart(evidence, number, starts[before], starts[number])
        for before, number in zip(order, order[1:], strict=False)
    )


def _restart(evidence: Evidence, number: int, before: list[Trainer], after: list[Trainer]) -> Restart:
    """Return what is known about one restart."""
    tables = [evidence.get(find_steps, trainer).table for trainer in before]
    ended = max(int(table["end"][-1]) for table in tables)
    begun = min(int(evidence.get(find_steps, trainer).table["start"][0]) for trainer in after)
    ends = _ends(evidence, before)
    processes = pl.col("track").is_in([trainer.process for trainer in after])
    counted = evidence.timeline.facts.filter(processes, pl.col("key") == RESTARTS, pl.col("value") != "0")
    return Restart(
        start=number,
        ranks=len(after),
        first=min(ends, key=lambda pair: pair[0])[1] if ends else None,
        steps=max(table.height for table in tables),
        gap_ns=max(0, begun - ended),
        after_failure=not counted.is_empty() or 0 < len(ends) < len(before),
    )


def _ends(evidence: Evidence, ranks: list[Trainer]) -> list[tuple[int, Trainer]]:
    """Return when the processes of ranks ended by themselves; a killed process does not record its end."""
    rows = evidence.timeline.coverage.filter(
        pl.col("what") == RECORDER, pl.col("note").is_null(), pl.col("end") > pl.col("start")
    )
    ends = dict(rows.group_by("track").agg(pl.col("end").max()).iter_rows())
    return [(ends[trainer.process], trainer) for trainer in ranks if trainer.process in ends]

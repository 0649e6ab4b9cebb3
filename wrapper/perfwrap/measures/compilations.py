"""What torch.compile did inside the steady loop, and why it had to."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.journal_format import FIELD_SEPARATOR
from perfwrap.measures.account import Account
from perfwrap.measures.lines import Line
from perfwrap.measures.loop_spans import loop_spans
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

MARKS = ("recompile", "recompile_limit", "compile_failed", "graph_break")


@dataclass(frozen=True)
class Reason:
    """Why a function was compiled anew or its graph broke: the mark's name, its line, and Dynamo's own words."""

    mark: str
    where: Line | None
    words: str


@dataclass(frozen=True)
class Compilations:
    """Compilations that began in the steady loop; ``share`` is their time over the whole account."""

    count: int
    again: int
    """Of them, those of functions that had been compiled before."""
    ns: int
    share: float
    where: Line | None
    """The function that took most of the time to compile."""
    reasons: tuple[Reason, ...]
    """Of the whole run, in order; those of the loop's own recompilations are among them."""


def find_compilations(timeline: Timeline, trainer: Trainer, account: Account) -> Compilations:
    """Return what was compiled inside a trainer's steady loop."""
    spans = loop_spans(timeline, trainer, account).filter(pl.col("operation") == "compile")
    ns = account.ns["compile"]
    return Compilations(
        count=spans.height,
        again=spans.filter(pl.col("value") > 0).height,
        ns=ns,
        share=account.shares["compile"],
        where=_costliest(spans),
        reasons=_reasons(timeline, trainer),
    )


def _costliest(spans: pl.DataFrame) -> Line | None:
    """Return the line of the function that took longest to compile, all its compilations together."""
    known = spans.drop_nulls(["file", "line"])
    if known.is_empty():
        return None
    lines = known.group_by("file", "line").agg(pl.col("function").first(), pl.col("duration").sum())
    row = lines.sort("duration", "file", "line", descending=[True, False, False]).row(0, named=True)
    return Line(row["file"], row["line"], row["function"] or "")


def _reasons(timeline: Timeline, trainer: Trainer) -> tuple[Reason, ...]:
    """Return what Dynamo said in the trainer's process."""
    marks = timeline.marks.filter(pl.col("name").is_in(MARKS))
    threads = timeline.tracks.filter(pl.col("parent") == trainer.process)["id"].to_list()
    own = marks.filter(pl.col("track").is_in([trainer.process, *threads])).sort("time")
    return tuple(_reason(row["name"], row["detail"] or "") for row in own.iter_rows(named=True))


def _reason(mark: str, detail: str) -> Reason:
    """Return a mark taken apart."""
    file, line, function, _, words = (detail.split(FIELD_SEPARATOR, 4) + [""] * 5)[:5]
    where = Line(file, int(line), function) if file and line.isdigit() else None
    return Reason(mark, where, words)

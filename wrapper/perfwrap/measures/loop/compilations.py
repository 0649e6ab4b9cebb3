"""What torch.compile did in the steady loop, and why."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.journal_format import FIELD_SEPARATOR
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_spans import loop_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

MARKS = ("recompile", "recompile_limit", "compile_failed", "graph_break")


class Reason(Struct, frozen=True):
    """Why a function was recompiled or its graph broke: the name of the mark, its line, and Dynamo's message."""

    mark: str
    where: Line | None
    words: str


class Compilations(Struct, frozen=True):
    """Compilations that started in the steady loop; ``share`` is their time over the whole account."""

    count: int
    again: int
    """How many of them are of functions that had been compiled before."""
    ns: int
    share: float
    where: Line | None
    """The function with the longest compile time."""
    reasons: tuple[Reason, ...]
    """Reasons of the whole run, in order, including those of recompilations in the loop."""


def find_compilations(evidence: Evidence, trainer: Trainer) -> Compilations:
    """Return what was compiled inside a trainer's steady loop."""
    account = evidence.get(find_account, trainer)
    spans = loop_spans(evidence.timeline, trainer, account).filter(pl.col("operation") == "compile")
    ns = account.ns["compile"]
    return Compilations(
        count=spans.height,
        again=spans.filter(pl.col("value") > 0).height,
        ns=ns,
        share=account.shares["compile"],
        where=_costliest(spans),
        reasons=_reasons(evidence.timeline, trainer),
    )


def _costliest(spans: pl.DataFrame) -> Line | None:
    """Return the line of the function with the longest total compile time."""
    known = spans.drop_nulls(["file", "line"])
    if known.is_empty():
        return None
    lines = known.group_by("file", "line").agg(pl.col("function").first(), pl.col("duration").sum())
    row = lines.sort("duration", "file", "line", descending=[True, False, False]).row(0, named=True)
    return Line(row["file"], row["line"], row["function"] or "")


def _reasons(timeline: Timeline, trainer: Trainer) -> tuple[Reason, ...]:
    """Return Dynamo's messages in the trainer's process."""
    marks = timeline.marks.filter(pl.col("name").is_in(MARKS))
    threads = timeline.tracks.filter(pl.col("parent") == trainer.process)["id"].to_list()
    own = marks.filter(pl.col("track").is_in([trainer.process, *threads])).sort("time")
    return tuple(_reason(row["name"], row["detail"] or "") for row in own.iter_rows(named=True))


def _reason(mark: str, detail: str) -> Reason:
    """Return the parts of a mark."""
    file, line, function, _, words = (detail.split(FIELD_SEPARATOR, 4) + [""] * 5)[:5]
    where = Line(file, int(line), function) if file and line.isdecimal() else None
    return Reason(mark, where, words)

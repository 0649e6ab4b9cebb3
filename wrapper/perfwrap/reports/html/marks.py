"""Events: epochs, checkpoints, garbage collection, compilation, slow steps, errors."""

from __future__ import annotations

from typing import Any

import polars as pl

from perfwrap import units
from perfwrap.diagnosis.model import Overview
from perfwrap.reports.html.encoding import SECOND_NS, clipped
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.notebook_cells import at_line

MOST = 200
"""Marks of a kind; of more, the longest are kept."""

MIN_NS = 1_000_000
"""A pause of Python's collector below this is not marked."""

KINDS = {"checkpoint": "checkpoint", "gc": "garbage collection", "compile": "compilation"}
"""Categories of spans that are marked, and their labels."""

RECORDED = {
    "recompile": "recompilation",
    "recompile_limit": "recompile limit",
    "graph_break": "graph break",
    "compile_failed": "compilation failed",
    "non_finite": "NaN or infinity",
    "out_of_memory": "out of memory",
    "xid": "GPU error",
}
"""Marks that are drawn, and their labels."""

Mark = tuple[int, int, str]
"""A moment, how long it took (0: not known), and its text."""


def marks(timeline: Timeline, overview: Overview, origin: int) -> list[dict[str, Any]]:
    """Return the marks by kind, each with its moments in seconds and its words."""
    found: dict[str, list[Mark]] = {}
    if overview.main is not None:
        trainer = overview.trainers[overview.main]
        found["epoch"] = _epochs(trainer.steps)
        found["slow step"] = [
            (
                step.start,
                step.duration_ns,
                f"step {units.count(step.index)} took {units.duration(step.duration_ns)}: {step.cause}"
                + (
                    ""
                    if step.where is None
                    else f" at {at_line(clipped(step.where.file, 120), step.where.line)}"
                ),
            )
            for step in (trainer.slow.slow if trainer.slow else ())
        ]
        found |= _spans(timeline, trainer.trainer.thread)
    for name, label in RECORDED.items():
        rows = timeline.marks.filter(pl.col("name") == name)
        found[label] = [
            (time, 0, _detail(label, detail)) for time, detail in rows["time", "detail"].iter_rows()
        ]
    return [_mark(kind, rows, origin) for kind, rows in found.items() if rows]


def _mark(kind: str, rows: list[Mark], origin: int) -> dict[str, Any]:
    """Return one kind's marks, the longest where there are too many."""
    kept = sorted(sorted(rows, key=lambda row: -row[1])[:MOST])
    return {
        "kind": kind,
        "count": len(rows),
        "x": [round((start - origin) / SECOND_NS, 6) for start, _, _ in kept],
        "seconds": [round(duration / SECOND_NS, 6) for _, duration, _ in kept],
        "text": [clipped(text, 300) for _, _, text in kept],
    }


def _epochs(steps: pl.DataFrame) -> list[Mark]:
    """Return where each epoch begins."""
    known = steps.drop_nulls("epoch")
    begins = known.filter(pl.col("epoch") != pl.col("epoch").shift(1).fill_null(-1))
    return [
        (start, 0, f"epoch {epoch + 1} begins")
        for start, epoch in begins.select("start", "epoch").iter_rows()
    ]


def _spans(timeline: Timeline, thread: int) -> dict[str, list[Mark]]:
    """Return what blocked the training thread for a while."""
    rows = timeline.spans.filter(
        pl.col("track") == thread,
        pl.col("category").cast(pl.String).is_in(list(KINDS)),
        pl.col("duration") >= MIN_NS,
    ).select("category", "start", "duration", "operation", "file", "line")
    found: dict[str, list[Mark]] = {}
    for category, start, duration, operation, file, line in rows.iter_rows():
        place = f" at {at_line(clipped(file, 120), line)}" if file is not None else ""
        text = f"{KINDS[category]} ({operation}), {units.duration(duration)}{place}"
        found.setdefault(KINDS[category], []).append((start, duration, text))
    return found


def _detail(label: str, detail: str | None) -> str:
    return label if not detail else f"{label}: {detail}"

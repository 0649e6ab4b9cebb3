"""The data of the page, as plain values; the file of each part describes them."""

from __future__ import annotations

from typing import Any

import polars as pl

from perfwrap.diagnosis.model import UNKNOWN, Diagnosis, Overview
from perfwrap.reports.cost import own_cost
from perfwrap.reports.html import (
    account_chart,
    flames,
    lanes,
    line_by_line,
    machine_charts,
    marks,
    rank_chart,
    summary,
    tables,
)
from perfwrap.reports.html.encoding import SECOND_NS, clipped
from perfwrap.timeline.model import CATEGORIES, Timeline

NOTHING = Overview(
    (), None, (), (), pl.DataFrame(schema={"start": pl.Int64, "end": pl.Int64, "state": pl.String})
)
"""The overview of a run in which nothing trained, or whose overview failed."""


def document(diagnosis: Diagnosis, timeline: Timeline) -> dict[str, Any]:
    """Return the page's data. Times are seconds since ``origin``: the start of the run, or of what was recorded."""
    overview = diagnosis.overview or NOTHING
    first, last = _extent(timeline)
    panels = [
        account_chart.steps_panel(overview, first),
        None if UNKNOWN in diagnosis.account else account_chart.parts_panel(overview, first),
        account_chart.states_panel(overview, first),
        *machine_charts.machine_panels(timeline, overview, first),
    ]
    chosen = lanes.lanes(timeline, diagnosis)
    for lane in chosen:
        lane["at"] = (lane["at"] - first) / SECOND_NS
    return {
        "heading": summary.heading(diagnosis),
        "verdict": summary.verdict(diagnosis),
        "whole_run": summary.whole_run(diagnosis),
        "account": summary.account(diagnosis),
        "lines": line_by_line.line_by_line(diagnosis),
        "findings": summary.findings(diagnosis),
        "unhelpful": [clipped(each.sentence) for each in diagnosis.would_not_help],
        "outcomes": summary.outcomes(diagnosis),
        "notes": _notes(diagnosis),
        "seconds": (last - first) / SECOND_NS,
        "panels": [panel for panel in panels if panel is not None],
        "marks": marks.marks(timeline, overview, first),
        "lanes": chosen,
        "categories": list(CATEGORIES),
        "flames": flames.flames(timeline, overview),
        "ranks": rank_chart.ranks(diagnosis),
        "tables": tables.tables(timeline, diagnosis, first),
    }


def _extent(timeline: Timeline) -> tuple[int, int]:
    """Return the first and the last moment of the run, or of what was recorded of it."""
    start, end = timeline.run.get("start"), timeline.run.get("end")
    ends = pl.col("start") + pl.col("duration")
    known = [
        *timeline.spans.select(pl.col("start").min(), ends.max().alias("last")).row(0),
        *timeline.samples.select(pl.col("time").min(), pl.col("time").max().alias("last")).row(0),
        *timeline.stacks.select(pl.col("time").min(), pl.col("time").max().alias("last")).row(0),
    ]
    moments = [moment for moment in known if moment is not None] or [0]
    first = start["monotonic_ns"] if isinstance(start, dict) else min(moments)
    last = end["monotonic_ns"] if isinstance(end, dict) else max(moments)
    return first, max(first + 1, last)


def _notes(diagnosis: Diagnosis) -> list[str]:
    """Return what else is to be known: perfwrap's own cost, the profiler's windows, and warnings."""
    found = list(filter(None, [own_cost(diagnosis)]))
    for note in dict.fromkeys(diagnosis.windows):
        left_out = "; these steps are in no figure of the account" if "tools/" in note else ""
        found.append(clipped(f"PyTorch's profiler: {note}{left_out}."))
    return found + [clipped(f"Warning: {warning}") for warning in diagnosis.warnings]

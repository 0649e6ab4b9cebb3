"""A few steps by thread: the worst, the median, one captured by a profiler, and the most expensive ones of findings."""

from __future__ import annotations

from typing import Any

import polars as pl

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis, Overview
from perfwrap.reports.html.encoding import SECOND_NS, clipped, numbers
from perfwrap.timeline.model import CATEGORIES, Timeline
from perfwrap.timeline.notebook_cells import at_line

MAX_SPANS = 1_200
"""Spans of a step that are drawn, the longest."""

MAX_LANES = 32
"""Threads and streams of a step that are drawn, those with most in them."""

DEEPEST = 5
"""Levels of nested spans; deeper spans are drawn on the last."""

MARGIN = 0.03
"""How much before and after the step is shown, of its length."""

MAX_FINDINGS = 4
"""Findings with a separate step."""

UNITS = ((5e9, 1e9, "s"), (5e6, 1e6, "ms"), (0.0, 1e3, "µs"))
"""From which length of a step which unit is used, with its nanoseconds."""

Chosen = tuple[str, str, int, pl.DataFrame]
"""An id, what it is called, the trainer's place, and the row of the step."""


def lanes(timeline: Timeline, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return the chosen steps with the spans of all threads, workers and streams in them."""
    overview = diagnosis.overview
    if overview is None or overview.main is None:
        return []
    drawn = timeline.tracks.filter(pl.col("kind").is_in(["thread", "stream"]))
    found = []
    for name, title, place, step in _chosen(diagnosis, overview):
        row = step.row(0, named=True)
        rows = _spans(timeline, drawn, overview.trainers[place].trainer.host, row["start"], row["end"])
        if rows.height:
            found.append(
                {"id": name, "title": _title(title, row), **_drawn(timeline, rows, row, place, overview)}
            )
    return found


def _title(title: str, row: dict[str, Any]) -> str:
    return f"{title}: step {units.count(row['index'])}, {units.duration(row['duration'], 3)}"


def _chosen(diagnosis: Diagnosis, overview: Overview) -> list[Chosen]:
    """Return the steps to draw, each of them once."""
    main = overview.main or 0
    table = overview.trainers[main].steps
    detailed = table.filter("detailed", ~pl.col("windowed"))
    steady = detailed.filter("steady")
    usual = steady if steady.height else detailed
    middle = usual["duration"].median()
    distance = (pl.col("duration") - middle).abs()
    found = [
        ("worst", "Worst step", main, usual.sort("duration", descending=True).head(1)),
        ("median", "Median step", main, usual.sort(distance, "index").head(1)),
        ("window", "Step captured by torch.profiler", main, table.filter("windowed").head(1)),
    ]
    for number, finding in enumerate(diagnosis.findings[:MAX_FINDINGS]):
        place = overview.claimants[number]
        own = overview.trainers[place].steps.filter("detailed")
        claimed = overview.claims[number].join(own, left_on="step", right_on="index")
        worst = claimed.sort("ns", descending=True).head(1).rename({"step": "index"})
        found.append((f"finding-{number}", f"Most expensive step for {finding.rule}", place, worst))
    return [chosen for chosen in found if chosen[3].height]


def _spans(timeline: Timeline, drawn: pl.DataFrame, host: str, start: int, end: int) -> pl.DataFrame:
    """Return the spans of a host's threads and streams that touch the step."""
    margin = round((end - start) * MARGIN)
    tracks = drawn.filter((pl.col("host") == host) | pl.col("host").is_null())["id"].to_list()
    return timeline.spans.filter(
        pl.col("start") < end + margin,
        pl.col("start") + pl.col("duration") > start - margin,
        pl.col("track").is_in(tracks),
        pl.col("duration") > 0,
        pl.col("category") != "step",
    )


def _drawn(
    timeline: Timeline, rows: pl.DataFrame, step: dict[str, Any], place: int, overview: Overview
) -> dict[str, Any]:
    """Return what is drawn of a step: its lanes from the top, and its spans in columns."""
    start, end = step["start"], step["end"]
    margin = round((end - start) * MARGIN)
    order = _lane_order(rows, overview.trainers[place].trainer.thread)
    kept = rows.filter(pl.col("track").is_in(order)).sort("duration", descending=True).head(MAX_SPANS)
    kept = kept.sort("start", pl.col("duration"), descending=[False, True])
    depths = _depths(kept)
    names: dict[str, int] = {}
    label = [
        names.setdefault(text, len(names)) for text in (_label(row) for row in kept.iter_rows(named=True))
    ]
    begin = kept["start"].clip(start - margin, None)
    finish = (kept["start"] + kept["duration"]).clip(None, end + margin)
    tall: dict[int, int] = {}
    for track, depth in zip(kept["track"].to_list(), depths, strict=True):
        tall[track] = max(tall.get(track, 0), depth + 1)
    shown = [track for track in order if track in tall]
    size, unit = next((size, unit) for least, size, unit in UNITS if end - start >= least)
    return {
        "step": step["index"],
        "unit": unit,
        "length": (end - start) / size,
        "seconds": (end - start) / SECOND_NS,
        "at": start,
        "left_out": rows.height - kept.height,
        "lanes": [{"name": _lane_name(timeline, track), "rows": tall[track]} for track in shown],
        "names": list(names),
        "start": numbers(((begin - start) / size).to_numpy()),
        "drawn": numbers(((finish - begin) / size).to_numpy()),
        "whole": numbers((kept["duration"] / size).to_numpy()),
        "lane": numbers([shown.index(track) for track in kept["track"].to_list()], "i4"),
        "depth": numbers(depths, "u1"),
        "label": numbers(label, "i4"),
        "category": numbers([CATEGORIES.index(name) for name in kept["category"].to_list()], "u1"),
    }


def _lane_order(rows: pl.DataFrame, first: int) -> list[int]:
    """Return the tracks from the top: the training thread, then those with most in them."""
    busy = (
        rows.group_by("track")
        .agg(pl.col("duration").sum())
        .sort("duration", "track", descending=[True, False])
    )
    others = [track for track in busy["track"].to_list() if track != first]
    return ([first] if first in busy["track"] else []) + others[: MAX_LANES - 1]


def _depths(rows: pl.DataFrame) -> list[int]:
    """Return for each span how many spans of its track it lies in; rows are sorted by start, the longest first."""
    open_ends: dict[int, list[int]] = {}
    found = []
    for track, start, duration in rows.select("track", "start", "duration").iter_rows():
        ends = open_ends.setdefault(track, [])
        while ends and ends[-1] <= start:
            ends.pop()
        found.append(min(len(ends), DEEPEST - 1))
        ends.append(start + duration)
    return found


def _label(row: dict[str, Any]) -> str:
    """Return the text of a span: what it was and where it was called."""
    what = row["operation"] if row["category"] not in ("kernel", "other") else row["name"] or row["operation"]
    named = row["name"] if row["name"] and row["name"] != what else ""
    place = at_line(row["file"], row["line"]) if row["file"] else ""
    return "\n".join(clipped(text, 200) for text in (what or row["category"], named, place) if text)


def _lane_name(timeline: Timeline, track: int) -> str:
    """Return the name of a lane: rank and role of the process, the thread or stream, and the process's number."""
    row = timeline.tracks.filter(pl.col("id") == track).row(0, named=True)
    process = timeline.tracks.filter(pl.col("id") == row["parent"])
    name = row["name"] or f"{row['kind']} {row['tid'] or track}"
    if process.is_empty():
        return clipped(name, 60)
    owner = process.row(0, named=True)
    rank = "" if owner["rank"] is None else f"rank {owner['rank']}"
    role = owner["role"] if owner["role"] not in (None, "main") else ""
    pid = f"({owner['pid']})" if owner["pid"] else ""
    return clipped(" ".join(word for word in (rank, role, name, pid) if word), 60)

"""Stacks as a tree.

Sampled Python stacks: first the activity of the GPU, then the frames from the outermost. The stacks of a step's
operations: the frames from the outermost, then the part of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl

from perfwrap import units
from perfwrap.diagnosis.model import LineAccount, Overview
from perfwrap.reports.html.encoding import clipped
from perfwrap.reports.terminal.activity import WORDS
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.notebook_cells import frame_in_words

MIN_SHARE = 0.002
"""Frames with a smaller share of the samples are dropped: they would not be visible."""

MAX_NODES = 3_000
DEEPEST = 60

AT_WORK = {
    "data": "waiting for batches",
    "data_end": "waiting for batches",
    "fetch": "making batches",
    "getitem": "making samples",
    "collate": "collating",
    "loader_start": "starting a loader",
    "forward": "forward pass",
    "backward": "backward pass",
    "optimizer": "optimizer",
}
OWN_CODE = "the program's own Python"
NOT_RECORDED = "GPU not recorded"
PREFERRED = "py-spy"
"""The source that sees whole stacks at any moment; where it sampled, the recorder's samples are left out."""


def flames(timeline: Timeline, overview: Overview) -> dict[str, Any] | None:
    """Return the tree in columns (parent by place, label, samples, kind); None if nothing was sampled."""
    stacks = timeline.stacks
    if stacks.is_empty():
        return None
    if PREFERRED in stacks["source"]:
        stacks = stacks.filter(pl.col("source") == PREFERRED)
    rows = _grouped(timeline, stacks, overview)
    total = int(rows["weight"].sum())
    if not total:
        return None
    counts: dict[tuple[str, ...], int] = {}
    for group, stack, weight in rows.select("group", "stack", "weight").iter_rows():
        frames = [frame_in_words(frame) for frame in stack.split(";") if frame][:DEEPEST]
        _count(counts, (group, *frames), weight)
    tree = [(-1, "all samples", total, "all"), *_tree(counts, total)]
    watched = not overview.gpu_states.is_empty()
    return {
        "total": total,
        "source": clipped(stacks["source"][0], 60),
        "by": "GPU activity" if watched else "program activity",
        "parent": [node[0] for node in tree],
        "label": [node[1] for node in tree],
        "samples": [node[2] for node in tree],
        "kind": [node[3] for node in tree],
    }


def step_flames(account: LineAccount) -> dict[str, Any]:
    """Return the tree of a step in columns, with times in place of samples."""
    counts: dict[tuple[str, ...], int] = {}
    for (*frames, part), ns in account.stacks.items():
        _count(counts, (*frames[:DEEPEST], part), round(ns))
    total = sum(count for path, count in counts.items() if len(path) == 1)
    ends = {tuple(stack[:-1][:DEEPEST]) + stack[-1:] for stack in account.stacks}
    parts = {stack[-1] for stack in account.stacks}
    tree = _tree(counts, total, lambda path: "part" if path[-1] in parts and path in ends else "line")
    tree.insert(0, (-1, "one step", total, "all"))
    return {
        "parent": [node[0] for node in tree],
        "label": [node[1] for node in tree],
        "samples": [node[2] for node in tree],
        "amount": [units.duration(node[2]) for node in tree],
        "kind": [node[3] for node in tree],
    }


def _grouped(timeline: Timeline, stacks: pl.DataFrame, overview: Overview) -> pl.DataFrame:
    """Return group, stack and weight: how often each stack was seen in each group."""
    owners = timeline.tracks.filter(pl.col("kind") == "process").select(
        pl.col("id").alias("parent"), pl.col("role")
    )
    threads = timeline.tracks.select(pl.col("id").alias("track"), "parent").join(
        owners, on="parent", how="left"
    )
    rows = stacks.join(threads.select("track", "role"), on="track", how="left").sort("time")
    rows = _with_state(rows, overview)
    words = pl.col("operation").replace_strict(AT_WORK, default=None, return_dtype=pl.String)
    doing = words.fill_null(pl.col("operation")).fill_null(OWN_CODE)
    group = (
        pl.when(pl.col("role") == "worker")
        .then(pl.lit("DataLoader workers"))
        .otherwise(pl.col("state").fill_null(NOT_RECORDED) if not overview.gpu_states.is_empty() else doing)
    )
    known = pl.col("stack").fill_null("")
    return rows.group_by(group.alias("group"), known.alias("stack")).agg(pl.col("weight").sum()).sort("stack")


def _with_state(rows: pl.DataFrame, overview: Overview) -> pl.DataFrame:
    """Return the samples with what the GPU was doing then; null where that was not recorded."""
    states = overview.gpu_states
    if states.is_empty():
        return rows.with_columns(pl.lit(None, dtype=pl.String).alias("state"))
    idle = pl.format("GPU idle: {}", pl.col("state").replace(WORDS))
    known = states.select(
        pl.col("start").alias("time"),
        pl.col("end").alias("state_end"),
        pl.when(pl.col("state") == "busy").then(pl.lit("GPU busy")).otherwise(idle).alias("state"),
    ).sort("time")
    joined = rows.join_asof(known, on="time")
    return joined.with_columns(pl.when(pl.col("time") < pl.col("state_end")).then("state").alias("state"))


def _count(counts: dict[tuple[str, ...], int], path: tuple[str, ...], weight: int) -> None:
    """Add a stack to each of its frames."""
    for depth in range(1, len(path) + 1):
        counts[path[:depth]] = counts.get(path[:depth], 0) + weight


def _kind(path: tuple[str, ...]) -> str:
    return "group" if len(path) == 1 else "frame"


def _tree(
    counts: dict[tuple[str, ...], int], total: int, kind: Callable[[tuple[str, ...]], str] = _kind
) -> list[tuple[int, str, int, str]]:
    """Return the nodes below the whole, each after its parent: the parent's place, label, samples, kind."""
    kept = sorted(
        (path for path, count in counts.items() if count >= MIN_SHARE * total),
        key=lambda path: (len(path), -counts[path], path),
    )[:MAX_NODES]
    places = {path: place for place, path in enumerate(kept, start=1)}
    return [(places.get(path[:-1], 0), clipped(path[-1], 300), counts[path], kind(path)) for path in kept]

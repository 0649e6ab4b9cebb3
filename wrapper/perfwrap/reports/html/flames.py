"""The sampled Python stacks as a tree: first the activity of the GPU, then the frames from the outermost."""

from __future__ import annotations

from typing import Any

import polars as pl

from perfwrap.diagnosis.model import Overview
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
    tree = _tree(rows, total)
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


def _tree(rows: pl.DataFrame, total: int) -> list[tuple[int, str, int, str]]:
    """Return the nodes, each after its parent: the parent's place, label, samples, kind."""
    counts: dict[tuple[str, ...], int] = {}
    for group, stack, weight in rows.select("group", "stack", "weight").iter_rows():
        frames = [frame_in_words(frame) for frame in stack.split(";") if frame][:DEEPEST]
        path = (group, *frames)
        for depth in range(1, len(path) + 1):
            counts[path[:depth]] = counts.get(path[:depth], 0) + weight
    kept = sorted(
        (path for path, count in counts.items() if count >= MIN_SHARE * total),
        key=lambda path: (len(path), -counts[path], path),
    )[:MAX_NODES]
    places = {path: place for place, path in enumerate(kept, start=1)}
    nodes = [(-1, "all samples", total, "all")]
    for path in kept:
        kind = "group" if len(path) == 1 else "frame"
        nodes.append((places.get(path[:-1], 0), clipped(path[-1], 300), counts[path], kind))
    return nodes

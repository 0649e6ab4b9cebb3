"""The tables: GPUs, facts about processes and hosts, and what was recorded."""

from __future__ import annotations

from typing import Any

import polars as pl

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis, GpuFigures
from perfwrap.reports.html.encoding import clipped
from perfwrap.reports.terminal.activity import WORDS, critical_path
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.notebook_cells import at_line

MAX_ROWS = 1_500
"""Rows of a table; further ones are only counted."""

MAX_CHARACTERS = 200_000
MIN_SHARE = 0.005


def tables(timeline: Timeline, diagnosis: Diagnosis, origin: int) -> dict[str, Any]:
    """Return the tables; each has columns and rows of text."""
    return {
        "gpus": _gpus(diagnosis),
        "memory": _memory(diagnosis),
        "kernels": _kernels(diagnosis),
        "facts": _facts(timeline),
        "coverage": _coverage(timeline, origin),
    }


def _gpus(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return what each GPU did while its kernels were recorded."""
    rows = []
    for gpu in diagnosis.gpu_activity:
        classes = {kind.name: float(kind.duration_ns) for kind in gpu.classes}
        total = sum(classes.values())
        kinds = {name: value / total for name, value in classes.items()} if total else {}
        idle = {WORDS.get(blame, blame): share for blame, share in gpu.idle.items()}
        rows.append(
            [
                f"{gpu.host} {gpu.device}",
                _busy(gpu),
                _listed(idle),
                _listed(_exposed(gpu)),
                _listed(kinds),
                units.count(gpu.kernels),
                units.duration(gpu.launches.kernel_ns),
                critical_path(gpu) if gpu.critical_path else units.UNKNOWN,
            ]
        )
    columns = [
        "GPU",
        "busy",
        "idle",
        "exposed",
        "kernels by time",
        "kernels",
        "median kernel",
        "critical path",
    ]
    return _table(columns, rows)


def _busy(gpu: GpuFigures) -> str:
    """Return how busy a GPU was: in the loop, and while its kernels were recorded."""
    while_recorded = units.share(gpu.busy_share)
    if gpu.loop_busy_share is None or units.share(gpu.loop_busy_share) == while_recorded:
        return while_recorded
    return f"{units.share(gpu.loop_busy_share)} ({while_recorded} while recorded)"


def _exposed(gpu: GpuFigures) -> dict[str, float]:
    window = gpu.window_ns or 1
    return {
        "copies": gpu.copies_exposed_ns / window,
        "collectives": gpu.collective_exposed_ns / window,
    }


def _memory(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return what used the memory of each GPU, line by line."""
    rows = [
        [
            f"{memory.host} {memory.device}",
            at_line(held.where.file, held.where.line) if held.where else held.what or "not recorded",
            units.size(held.bytes),
            units.share(held.bytes / memory.allocated) if memory.allocated else units.UNKNOWN,
            units.count(held.blocks),
        ]
        for memory in diagnosis.gpu_memory
        for held in memory.lines
    ]
    return _table(["GPU", "allocated at", "in use", "share", "blocks"], rows)


def _kernels(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return what limits each kernel that ncu measured."""
    rows = [
        [
            kernel["kernel"],
            kernel["bound"] or units.UNKNOWN,
            units.share(kernel["compute_share"]),
            units.share(kernel["memory_share"]),
            units.duration(kernel["duration_ns"]),
        ]
        for kernel in diagnosis.kernels
    ]
    return _table(["kernel", "limited by", "compute", "memory", "time"], rows)


def _facts(timeline: Timeline) -> dict[str, Any]:
    """Return the last value of each fact of each track."""
    tracks = timeline.tracks.select(pl.col("id").alias("track"), pl.col("name").alias("of"))
    last = (
        timeline.facts.group_by("track", "key", maintain_order=True)
        .last()
        .join(tracks, on="track", how="left")
    )
    rows = last.sort("track", "key").select("of", "key", "value", "source").rows()
    return _table(["of", "fact", "value", "source"], [list(row) for row in rows])


def _coverage(timeline: Timeline, origin: int) -> dict[str, Any]:
    """Return what was recorded by which source, for how long, and what was lost."""
    tracks = timeline.tracks.select(pl.col("id").alias("track"), pl.col("name").alias("of"))
    found = timeline.coverage.join(tracks, on="track", how="left", maintain_order="left")
    rows = [
        [
            row["what"],
            row["of"],
            "" if row["start"] is None else units.duration(row["start"] - origin),
            "" if None in (row["start"], row["end"]) else units.duration(row["end"] - row["start"]),
            "" if not row["lost"] else units.count(row["lost"]),
            row["note"],
            row["source"],
        ]
        for row in found.iter_rows(named=True)
    ]
    return _table(["recorded", "of", "from", "for", "lost", "note", "source"], rows)


def _table(columns: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    kept: list[list[str]] = []
    room = MAX_CHARACTERS
    for row in rows[:MAX_ROWS]:
        kept.append(["" if cell is None else clipped(cell, 400) for cell in row])
        room -= sum(map(len, kept[-1]))
        if room < 0:
            break
    return {"columns": columns, "rows": kept, "left_out": len(rows) - len(kept)}


def _listed(shares: dict[str, float]) -> str:
    """Return the shares in words, the largest first, without the small ones."""
    known = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {units.share(share)}" for name, share in known if share >= MIN_SHARE)

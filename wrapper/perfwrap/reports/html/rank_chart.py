"""Step time by rank: which rank is slow, when, and in what."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from perfwrap import units
from perfwrap.diagnosis.model import Diagnosis, Overview
from perfwrap.reports.html.account_chart import scale
from perfwrap.reports.html.encoding import clipped, numbers
from perfwrap.reports.terminal.ranks import last_share, processes, summary, wait_share

MAX_CELLS = 60_000
"""Cells of one heat map."""

MAX_COLUMNS = 400
WAITING = "waiting for ranks"
"""The name of the map of waiting for other ranks."""
HEADS = ("training process", "host", "steps", "median step", "waits", "is last", "cores")
MIN_PART = 0.01
"""A part has a heat map if it has this share of some rank's loop."""


def ranks(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return the heat maps of several trainers, and a row for each; None if only one trained."""
    overview = diagnosis.overview
    if overview is None or len(overview.trainers) < 2:
        return None
    steps = max(trainer.steps.height for trainer in overview.trainers)
    if not steps:
        return None
    columns = min(MAX_COLUMNS, steps, max(1, MAX_CELLS // len(overview.trainers)))
    together = -(-steps // columns)
    size, unit = scale(overview.trainers[overview.main or 0].steps)
    parts = _large_parts(overview)
    maps = {"step time": _times(overview, together, columns, size)}
    if any(trainer.waits.height for trainer in overview.trainers):
        maps[WAITING] = _waits(diagnosis, overview, together, columns, size)
    maps |= {part: _part_times(overview, part, together, columns, size) for part in parts}
    return {
        "names": [clipped(trainer.trainer.name, 60) for trainer in overview.trainers],
        "together": together,
        "columns": columns,
        "unit": unit,
        "maps": {name: [numbers(row) for row in rows] for name, rows in maps.items()},
        "summary": summary(diagnosis),
        "processes": processes(diagnosis),
        "heads": [*HEADS, *parts],
        "rows": _rows(diagnosis, overview, parts),
    }


def _large_parts(overview: Overview) -> list[str]:
    """Return the parts that matter on some rank, the largest first."""
    found: dict[str, float] = {}
    for trainer in overview.trainers:
        whole = int(trainer.parts["ns"].sum())
        sums = trainer.parts.group_by(pl.col("part").cast(pl.String)).agg(pl.col("ns").sum())
        for part, value in sums.iter_rows():
            found[part] = max(found.get(part, 0.0), value / whole if whole else 0.0)
    return [part for part in sorted(found, key=lambda part: -found[part]) if found[part] >= MIN_PART]


def _times(overview: Overview, together: int, columns: int, size: float) -> list[np.ndarray[Any, Any]]:
    """Return each rank's mean step time in each column; NaN where it made no steps."""
    rows = []
    for trainer in overview.trainers:
        place = trainer.steps["index"].to_numpy() // together
        many = np.bincount(place, minlength=columns)
        sums = np.bincount(place, trainer.steps["duration"].to_numpy(), columns)
        rows.append(_ratio(sums, many, size))
    return rows


def _waits(
    diagnosis: Diagnosis, overview: Overview, together: int, columns: int, size: float
) -> list[np.ndarray[Any, Any]]:
    """Return what each rank waited for others in each column; NaN if that is unknown of any of its steps."""
    rows = []
    for trainer, figures in zip(overview.trainers, diagnosis.ranks, strict=True):
        known = trainer.parts["step"].unique().to_numpy()[: None if figures.skew else 0]
        many = np.bincount(known // together, minlength=columns)
        place = trainer.waits["step"].to_numpy() // together
        rows.append(_ratio(np.bincount(place, trainer.waits["ns"].to_numpy(), columns), many, size))
    return rows


def _part_times(
    overview: Overview, part: str, together: int, columns: int, size: float
) -> list[np.ndarray[Any, Any]]:
    """Return the mean of one part in each column of each rank."""
    rows = []
    for trainer in overview.trainers:
        own = trainer.parts.filter(pl.col("part") == part)
        many = np.bincount(trainer.parts["step"].unique().to_numpy() // together, minlength=columns)
        sums = np.bincount(own["step"].to_numpy() // together, own["ns"].to_numpy(), columns)
        rows.append(_ratio(sums, many, size))
    return rows


def _ratio(sums: np.ndarray[Any, Any], many: np.ndarray[Any, Any], size: float) -> np.ndarray[Any, Any]:
    return np.where(many > 0, sums / np.maximum(many, 1) / size, np.nan)


def _rows(diagnosis: Diagnosis, overview: Overview, parts: list[str]) -> list[list[str]]:
    """Return the table's cells: those of HEADS, and the share of each part."""
    rows = []
    for trainer, figures in zip(overview.trainers, diagnosis.ranks, strict=True):
        whole = int(trainer.parts["ns"].sum())
        sums = {
            part: int(trainer.parts.filter(pl.col("part") == part)["ns"].sum()) / whole if whole else None
            for part in parts
        }
        head = [
            clipped(figures.name, 60),
            clipped(figures.host, 60),
            units.count(figures.steps),
            units.duration(figures.median_ns, 3),
            units.share(wait_share(diagnosis, figures)),
            units.share(last_share(figures)),
            figures.cores or units.UNKNOWN,
        ]
        rows.append(head + [units.share(share) for share in sums.values()])
    return rows

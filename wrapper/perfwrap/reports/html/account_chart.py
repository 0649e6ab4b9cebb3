"""The steps of the main training process, and where their time went, over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from perfwrap.diagnosis.model import Overview, TrainerOverview
from perfwrap.reports.html.encoding import SECOND_NS, Packed, clipped, levels, moments, numbers
from perfwrap.reports.terminal.activity import WORDS

BINS = (4_000, 500)
"""Points of the parts' levels, the finest first."""

SCALES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))
MIN_PART = 0.001
"""Parts with a smaller share of the loop are not drawn."""
MIN_NS = 0.5
"""Smaller times of a step are rounding errors."""
MAX_CLAIMS = 12
"""Findings whose time is drawn."""

Floats = NDArray[np.float64]


def steps_panel(overview: Overview, origin: int) -> dict[str, Any] | None:
    """Return each step's time over time; None without steps."""
    table = _main_steps(overview)
    if table is None or table.is_empty():
        return None
    size, unit = scale(table)
    points = table.select(
        ((pl.col("start") - origin) / SECOND_NS).alias("x"), (pl.col("duration") / size).alias("y")
    )
    counted = table.height - int(table["detailed"].sum())
    return {
        "id": "steps",
        "title": f"Step time{_whose(overview)}",
        "unit": unit,
        "note": counted,
        "end": (table["end"][-1] - origin) / SECOND_NS,
        "traces": [{"name": "step time", "band": True, "levels": levels(points)}],
    }


def parts_panel(overview: Overview, origin: int) -> dict[str, Any] | None:
    """Return the breakdown of the step time over time, and the part that each finding explains."""
    table = _main_steps(overview)
    if table is None or overview.main is None:
        return None
    parts = overview.trainers[overview.main].parts
    if parts.is_empty():
        return None
    size, unit = scale(table)
    whole = int(parts["ns"].sum())
    sums = parts.group_by("part").agg(pl.col("ns").sum()).sort("ns", descending=True)
    drawn = sums.filter(pl.col("ns") >= MIN_PART * whole)
    frames = {part: parts.filter(pl.col("part") == part) for part in drawn["part"].cast(pl.String).to_list()}
    spread = {place: _stands_for(overview.trainers[place]) for place in {overview.main, *overview.claimants}}
    first, last = int(parts["step"][0]), int(parts["step"][-1])
    # Steps in between that are no part of the account (watched by a profiler) stay empty.
    counted = np.arange(first, last + int(spread[overview.main][last]))
    # Another rank's claim is drawn at the same steps of this one: ranks go in lockstep.
    claims = {number: claim for number, claim in enumerate(overview.claims[:MAX_CLAIMS]) if claim.height}
    blocks = [StepBlocks.of(table, counted, origin, size, most) for most in _bins(counted.size)]
    layers: list[dict[str, Any]] = [{"x": found.x, "parts": {}, "claims": {}} for found in blocks]
    drawn_rows = [("parts", name, rows, overview.main) for name, rows in frames.items()]
    drawn_rows += [("claims", str(n), rows, overview.claimants[n]) for n, rows in claims.items()]
    for kind, name, rows, trainer in drawn_rows:
        per_step = _per_step(rows, spread[trainer], counted)
        for layer, found in zip(layers, blocks, strict=True):
            layer[kind][name] = found.means(per_step)
    end = (table["end"][int(counted[-1])] - origin) / SECOND_NS
    title = f"Where the time of a step goes{_whose(overview)}"
    return {"id": "parts", "title": title, "unit": unit, "end": end, "layers": layers}


def states_panel(overview: Overview, origin: int) -> dict[str, Any] | None:
    """Return how busy the GPU was where that was recorded, and the causes of its idle time."""
    states = overview.gpu_states
    if states.is_empty():
        return None
    first, last = int(states["start"].to_numpy()[0]), int(states["end"].to_numpy().max())
    names = states.group_by("state").agg((pl.col("end") - pl.col("start")).sum().alias("ns")).sort("ns")
    layers = []
    for bins in (2_000, 300):
        edges = np.linspace(first, last, bins + 1)
        length = (last - first) / bins
        shares = {
            name: 100 * np.diff(_covered(states.filter(pl.col("state") == name), edges)) / length
            for name in reversed(names["state"].to_list())
        }
        x = (edges[:-1] - origin) / SECOND_NS
        layers.append({"x": moments(x), "parts": {name: numbers(values) for name, values in shares.items()}})
    return {
        "id": "states",
        "title": "GPU busy, and why it was idle",
        "unit": "%",
        "words": {name: WORDS.get(name, name.replace("_", " ")) for name in names["state"].to_list()},
        "end": (last - origin) / SECOND_NS,
        "layers": layers,
    }


def scale(table: pl.DataFrame) -> tuple[float, str]:
    """Return the unit of step times: its nanoseconds, and its name."""
    median = float(table["duration"].median() or 0.0)  # type: ignore[arg-type]
    return next(((size, unit) for size, unit in SCALES if median >= size), SCALES[-1])


def _whose(overview: Overview) -> str:
    """Return whose steps are drawn, if several processes trained."""
    if overview.main is None or len(overview.trainers) < 2:
        return ""
    return f", {clipped(overview.trainers[overview.main].trainer.name, 40)}"


def _main_steps(overview: Overview) -> pl.DataFrame | None:
    return None if overview.main is None else overview.trainers[overview.main].steps


def _bins(steps: int) -> list[int]:
    """Return how many points each level has."""
    return [BINS[0], BINS[1]] if steps > BINS[1] else [BINS[0]]


def _stands_for(trainer: TrainerOverview) -> NDArray[np.int64]:
    """Return for each step of a trainer how many steps its time is that of.

    Where steps were only counted, the first of them has the time of all until the next that has any or is in detail.
    """
    stops = trainer.steps["detailed"].to_numpy().copy()
    stops[trainer.parts["step"].unique().to_numpy()] = True
    heads = np.flatnonzero(stops)
    many = np.ones(stops.size, dtype=np.int64)
    many[heads] = np.diff(np.append(heads, stops.size))
    return np.where(trainer.steps["detailed"].to_numpy(), 1, many)


def _per_step(rows: pl.DataFrame, stands_for: NDArray[np.int64], counted: NDArray[np.int64]) -> Floats:
    """Return the nanoseconds of each counted step, from rows of step and ns."""
    step = rows["step"].to_numpy()
    many = stands_for[step]
    begin = np.clip(step - counted[0], 0, counted.size)
    end = np.clip(step + many - counted[0], 0, counted.size)
    share = rows["ns"].to_numpy() / many
    change = np.bincount(begin, share, counted.size + 1) - np.bincount(end, share, counted.size + 1)
    found = np.cumsum(change[:-1])
    return np.where(found < MIN_NS, 0.0, found)


class StepBlocks(Struct, frozen=True):
    """Blocks of equally many of the counted steps, each of which is one point of a level."""

    x: Packed
    place: NDArray[np.int64]
    """The block of each counted step."""
    scale: Floats
    """What the nanoseconds of each block are divided by: its steps, and the unit."""

    @staticmethod
    def of(
        table: pl.DataFrame, counted: NDArray[np.int64], origin: int, size: float, most: int
    ) -> StepBlocks:
        """Return at most so many blocks."""
        together = -(-counted.size // most)
        place = np.arange(counted.size) // together
        x = (table["start"].to_numpy()[counted[::together]] - origin) / SECOND_NS
        return StepBlocks(moments(x), place, np.bincount(place).astype(np.float64) * size)

    def means(self, per_step: Floats) -> Packed:
        """Return the mean time of a step in each block."""
        return numbers(np.bincount(self.place, per_step, self.scale.size) / self.scale)


def _covered(rows: pl.DataFrame, edges: Floats) -> Floats:
    """Return how much of the blocks lies before each edge."""
    start, end = rows["start"].to_numpy(), rows["end"].to_numpy()
    whole = np.cumsum(end - start)
    moments = np.ravel(np.column_stack([start, end]))
    reached = np.ravel(np.column_stack([whole - (end - start), whole]))
    return np.asarray(np.interp(edges, moments, reached), dtype=np.float64)

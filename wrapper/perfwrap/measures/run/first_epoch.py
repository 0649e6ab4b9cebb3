"""The first epoch's steps compared with later ones."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct

from perfwrap.measures.account.loop_events import Integers
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.phases import DATA
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer

MIN_STEPS = 10
"""Detailed steps that an epoch needs for its median."""


class FirstEpoch(Struct, frozen=True):
    """Medians over detailed steps; ``later_ns`` is of all later epochs, ``slowest_later_ns`` of the slowest."""

    first_ns: float
    later_ns: float
    slowest_later_ns: float
    first_data_ns: float
    later_data_ns: float
    """Waits for batches in these steps."""
    epochs: int
    excess_ns: int
    """The extra time of the first epoch's steps over the same number of later ones."""

    @property
    def ratio(self) -> float:
        """The first epoch's step over the later ones."""
        return self.first_ns / self.later_ns


def find_first_epoch(evidence: Evidence, trainer: Trainer) -> FirstEpoch | None:
    """Return the comparison; None with fewer than two epochs of MIN_STEPS detailed steps.

    The warm-up counts here, because a first epoch that is slow throughout counts as warm-up.
    """
    steps = evidence.get(find_steps, trainer)
    table = steps.table.filter("detailed", ~pl.col("windowed"), pl.col("epoch").is_not_null())
    if table.is_empty():
        return None
    data = _data_ns(steps, table["start"].to_numpy(), table["end"].to_numpy())
    counted = table.with_columns(pl.Series("data", data))
    # The first step of an epoch includes the start of its loader, in the first epoch even more.
    inner = counted.filter(pl.col("epoch") == pl.col("epoch").shift(1))
    epochs = (
        inner.group_by("epoch")
        .agg(pl.len(), pl.col("duration").median(), pl.col("data").median())
        .filter(pl.col("len") >= MIN_STEPS)
        .sort("epoch")
    )
    first_epoch = counted["epoch"].min()
    later = epochs.filter(pl.col("epoch") > first_epoch)
    if later.is_empty() or epochs["epoch"][0] != first_epoch:
        return None
    others = inner.filter(pl.col("epoch").is_in(later["epoch"].to_list()))
    middle = float(others["duration"].median())  # type: ignore[arg-type]
    begun = steps.table.filter(pl.col("epoch") == first_epoch)
    return FirstEpoch(
        first_ns=float(epochs["duration"][0]),
        later_ns=middle,
        slowest_later_ns=float(later["duration"].max()),  # type: ignore[arg-type]
        first_data_ns=float(epochs["data"][0]),
        later_data_ns=float(others["data"].median()),  # type: ignore[arg-type]
        epochs=epochs.height,
        excess_ns=round(int(begun["duration"].sum()) - middle * begun.height),
    )


def _data_ns(steps: Steps, start: Integers, end: Integers) -> Integers:
    """Return how long each step waited for batches."""
    loader = steps.events.loader
    batches = steps.events.loader_kind == DATA
    total = np.append(0, np.cumsum((loader.end - loader.start)[batches]))
    begun = loader.start[batches]
    return np.asarray(total[np.searchsorted(begun, end)] - total[np.searchsorted(begun, start)])

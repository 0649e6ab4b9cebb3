"""During which part of the steady loop a setting of the program's was switched on."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.account import Account
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.model import Timeline

OFF = ("False", "0", "None", "")


def share_switched_on(timeline: Timeline, trainer: Trainer, account: Account, key: str) -> float:
    """Return the share of the account in which a fact of the trainer's process said that something was on.

    A setting stands from where it was learned until another value was; the recorder looks every ten seconds.
    """
    rows = timeline.facts.filter(pl.col("track") == trainer.process, pl.col("key") == key).sort("time")
    if rows.is_empty() or account.end <= account.start:
        return 0.0
    times = [*rows["time"].to_list(), account.end]
    inside = 0
    for begin, end, value in zip(times, times[1:], rows["value"].to_list(), strict=False):
        if value not in OFF:
            inside += max(0, min(end, account.end) - max(begin, account.start))
    return inside / (account.end - account.start)

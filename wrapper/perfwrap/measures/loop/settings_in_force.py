"""The part of the steady loop during which a setting of the program was on."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer

OFF = ("False", "0", "None", "")


def periods_switched_on(evidence: Evidence, trainer: Trainer, key: str) -> tuple[tuple[int, int], ...]:
    """Return the starts and ends of the periods in the account in which a fact of the trainer's process was on.

    A setting is on from the time it was recorded until another value was; the recorder checks it every ten seconds.
    """
    account = evidence.get(find_account, trainer)
    rows = evidence.timeline.facts.filter(pl.col("track") == trainer.process, pl.col("key") == key).sort(
        "time"
    )
    times = [*rows["time"].to_list(), account.end]
    periods = (
        (max(begin, account.start), min(end, account.end))
        for begin, end, value in zip(times, times[1:], rows["value"].to_list(), strict=False)
        if value not in OFF
    )
    return tuple((begin, end) for begin, end in periods if begin < end)


def share_switched_on(evidence: Evidence, trainer: Trainer, key: str) -> float:
    """Return the share of the account in which a fact of the trainer's process said that it was on."""
    account = evidence.get(find_account, trainer)
    inside = sum(end - begin for begin, end in evidence.get(periods_switched_on, trainer, key))
    return inside / (account.end - account.start) if inside else 0.0

"""The share of the steady loop during which a setting of the program was on."""

from __future__ import annotations

import polars as pl

from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer

OFF = ("False", "0", "None", "")


def share_switched_on(evidence: Evidence, trainer: Trainer, key: str) -> float:
    """Return the share of the account in which a fact of the trainer's process said that it was on.

    A setting is on from the time it was recorded until another value was; the recorder checks it every ten seconds.
    """
    account = evidence.get(find_account, trainer)
    rows = evidence.timeline.facts.filter(pl.col("track") == trainer.process, pl.col("key") == key).sort(
        "time"
    )
    if rows.is_empty() or account.end <= account.start:
        return 0.0
    times = [*rows["time"].to_list(), account.end]
    inside = 0
    for begin, end, value in zip(times, times[1:], rows["value"].to_list(), strict=False):
        if value not in OFF:
            inside += max(0, min(end, account.end) - max(begin, account.start))
    return inside / (account.end - account.start)

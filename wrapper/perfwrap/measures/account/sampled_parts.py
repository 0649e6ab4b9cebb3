"""The account of the training loop as py-spy's samples have it: an independent check of the recorded one.

py-spy looks from outside, at the same rate all the time, and knows nothing of the recorder. Samples of values that are
read and of copies have no operation of their own: they count as Python, in both accounts. So does what py-spy cannot
name, like the wait in another library's loader. A sample that has a name is certain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.parts import PART_OF
from perfwrap.measures.account.sampled_rest import OUTSIDE, PART_OF_OPERATION, SUMMED
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer

SAMPLED = ("data", "forward", "backward", "optimizer", "python")
"""The parts that both accounts know. What happens within others, such as validation, is left out."""
MERGED = {"recompute": "backward", "transfer": "python", "sync": "python"}
MIN_SAMPLES = 100
MIN_DIFFERENCE = 0.2
ERRORS = 4.0
"""The samples contradict the account if a part that they name has a share larger by this, and by as many standard
errors of the samples."""

LENGTH = pl.col("end") - pl.col("start")


@dataclass(frozen=True)
class SampledParts:
    """Shares of the training loop, in the account and in the samples."""

    ns: int
    """The time that is compared."""
    samples: int
    shares: dict[str, tuple[float, float]]
    """Of each part in ``SAMPLED``: the share in the account, and the share of the samples."""

    def error(self, part: str) -> float:
        """Return the standard error of a part's share of the samples."""
        share = self.shares[part][1]
        return math.sqrt(max(share * (1 - share), 1 / self.samples) / self.samples)


def find_contradiction(evidence: Evidence, trainer: Trainer) -> tuple[str, float, float] | None:
    """Return the part of which there are far more samples than the account has, with both shares; None without one.

    The place of validations among counted steps is unknown: their share of the loop may be any part.
    """
    found = sampled_parts(evidence, trainer)
    if found is None or found.samples < MIN_SAMPLES:
        return None
    named = [part for part in SAMPLED if part != "python"]
    part = max(named, key=lambda name: found.shares[name][1] - found.shares[name][0])
    recorded, sampled = found.shares[part]
    least = max(MIN_DIFFERENCE, ERRORS * found.error(part))
    validation = evidence.get(find_account, trainer).shares["validation"]
    return (part, recorded, sampled) if sampled - recorded > least + validation else None


def sampled_parts(evidence: Evidence, trainer: Trainer, estimated: bool | None = None) -> SampledParts | None:
    """Compare the account of a trainer with the samples of its thread; None without samples.

    ``estimated`` restricts it to steps that were only counted (True) or recorded in detail (False).
    """
    segments = _segments(evidence.get(find_account, trainer))
    stacks = evidence.timeline.stacks.filter(pl.col("track") == trainer.thread, pl.col("source") == OUTSIDE)
    if segments.is_empty() or stacks.is_empty():
        return None
    names = {**PART_OF, **PART_OF_OPERATION, **dict.fromkeys(SUMMED, "data")}
    seen = pl.col("operation").replace_strict(names, default="python").replace(MERGED).alias("seen")
    samples = (
        stacks.select(pl.col("time").alias("start"), "weight", seen)
        .sort("start")
        .join_asof(segments.rename({"end": "until"}), on="start", strategy="backward")
        .filter(pl.col("start") < pl.col("until"))
    )
    compared = pl.col("part").is_in(SAMPLED)
    if estimated is not None:
        compared &= pl.col("estimated") == estimated
    samples = samples.filter(compared)
    if samples.is_empty():
        return None
    # py-spy may have begun late or ended early.
    sampled = pl.col("end") >= samples["start"].min(), pl.col("start") <= samples["start"].max()
    segments = segments.filter(compared, *sampled)
    whole, count = int(segments.select(LENGTH.sum()).item()), int(samples["weight"].sum())
    if not whole or not count:
        return None
    recorded = dict(segments.group_by("part").agg(LENGTH.sum()).iter_rows())
    seen_by = dict(samples.group_by("seen").agg(pl.col("weight").sum()).iter_rows())
    shares = {name: (recorded.get(name, 0) / whole, seen_by.get(name, 0) / count) for name in SAMPLED}
    return SampledParts(whole, count, shares)


def _segments(account: Account) -> pl.DataFrame:
    part = pl.col("part").cast(pl.String).replace(MERGED)
    return account.segments.select("start", "end", "estimated", part).sort("start")

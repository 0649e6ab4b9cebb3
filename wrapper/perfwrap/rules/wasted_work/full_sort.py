"""Whole rows are sorted, though only a few of the entries are read.

What it finds
    torch.sort and argsort whose results are read only in the first or last entries of each row, a quarter of them at
    most. Reported from 3 % of the training loop. A sort with stable=True is left out.

Why it costs
    A sort orders all entries. torch.topk finds the largest or smallest ones alone, min and max a single one.

How the gain is estimated
    Of the sort's time and its backward 85 % if at most an eighth of the entries is read, 65 % up to a quarter: measured
    on a CPU for rows of 64 to 4,096 entries, topk took 2 to 19 % of a sort's time for few entries, 23 to 38 % for a
    quarter.

How to fix
    x.topk(k) instead of x.sort(descending=True) and `[..., :k]`, with largest=False for the smallest; amin, amax, min
    or max for one.

When it is wrong
    When the program relies on the order of equal entries: topk may return others of them.

"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import SORT
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import SHARE, Answer
from perfwrap.rules.wasted_step import MIN_WASTE_SHARE, Words, at, found, lines

NEEDS = ("steady_steps", "operations")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_share: float = MIN_WASTE_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for sorts of which few entries are read."""
    nothing = "The watched step sorts no rows of which only a few entries are read."
    return found(evidence, trainer, SORT, limits.min_share, _words, nothing)


def _words(waste: Waste) -> Words:
    """Return the sentences about one waste."""
    assert waste.used is not None
    times = "once" if waste.count == 1 else units.counted(waste.count, "time")
    return Words(
        title=f"{SHARE} of the training loop can be saved by topk instead of a whole sort, at {at(waste)}.",
        evidence=(
            f"A step sorts {times}, at {lines(waste.lines)}, and reads {units.share(waste.used)} of the entries.",
        ),
        advice="Use torch.topk, with largest=False for the smallest entries; for a single one amin, amax, min or max.",
    )

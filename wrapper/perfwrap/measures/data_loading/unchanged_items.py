"""Whether a loader's items are the same bytes each time that they are made: the facts ``item/...``."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

import polars as pl
from msgspec import Struct

from perfwrap.measures.data_loading.batch_making import workers_of
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.timeline.lookup import facts_of, host_facts

WORDS = re.compile(r"(\d{1,10}) (\d{1,15}) (\d{1,20}) ([01]) (\d{1,15})")
"""The recorder's figures: checksum, bytes, place in memory, whether a generator moved, the largest index so far."""

FEW = 4
"""With fewer items that one rank made twice, those of the other ranks are compared, too."""


class Check(Struct, frozen=True):
    """One item as it was made once."""

    index: int
    checksum: int
    bytes: int
    place: int
    moved: bool
    largest: int


class CheckedItems(Struct, frozen=True):
    """The items of one loader that were checked at least twice."""

    count: int
    same: int
    """How many of them were the same bytes each time."""
    moved: bool
    """Whether a global random generator moved while a batch with a checked item was made."""
    are_kept: bool
    """Whether the same items were in the same places in memory: views of a tensor, or cached already."""
    bytes_each: float
    """Mean over all checked items."""
    length: int
    """Of the dataset; if that is unknown, one more than the largest index that was seen."""

    @property
    def never_change(self) -> bool:
        """Whether all were the same, and nothing random was involved."""
        return self.same == self.count and not self.moved

    @property
    def bytes(self) -> float:
        """About the memory that all items of the dataset need."""
        return self.bytes_each * self.length


def find_checked_items(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> CheckedItems | None:
    """Return what is known of a loader's items; None if none was checked twice, or one is of an unknown type."""
    own = _checks(evidence, trainer, loader)
    if own is None:
        return None
    found = _summary(own, loader)
    if found is not None and found.count >= FEW:
        return found
    others = [_checks(evidence, each, loader) or [] for each in _other_ranks(evidence, trainer, loader)]
    return _summary([*own, *(check for checks in others for check in checks)], loader)


def find_memory(evidence: Evidence, host: str) -> float | None:
    """Return the memory of a host in bytes, or of its container if that has less; None if it was not recorded."""
    facts = host_facts(evidence.timeline, host)
    known = [facts.get(key, "") for key in ("memory_total_bytes", "memory_limit_bytes")]
    return min((float(value) for value in known if value.isdecimal()), default=None)


def _other_ranks(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> list[Trainer]:
    """Return the other trainers that have a loader of that name over the same class of datasets."""
    key = f"{loader.name}/dataset"
    return [
        other
        for other in evidence.get(find_trainers)
        if other.process != trainer.process
        and loader.dataset is not None
        and facts_of(evidence.timeline, other.process).get(key) == loader.dataset
    ]


def _checks(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> list[Check] | None:
    """Return all checks of a loader's items; None if an item was of an unknown type."""
    timeline = evidence.timeline
    tracks = workers_of(timeline, trainer, loader.name) if loader.workers else [trainer.process]
    prefix = "item/worker/" if loader.workers else f"item/{loader.name}/"
    rows = timeline.facts.filter(pl.col("track").is_in(tracks), pl.col("key").str.starts_with(prefix))
    found = []
    for key, value in rows.sort("time", maintain_order=True).select("key", "value").iter_rows():
        words, index = WORDS.fullmatch(value), key.removeprefix(prefix)
        if words is None or not index.lstrip("-").isdecimal():
            return None
        checksum, size, place, moved, largest = map(int, words.groups())
        found.append(Check(int(index), checksum, size, place, bool(moved), largest))
    return found


def _summary(checks: Iterable[Check], loader: LoaderUse) -> CheckedItems | None:
    """Return what the checks say together."""
    by_index: dict[int, list[Check]] = defaultdict(list)
    for check in checks:
        by_index[check.index].append(check)
    again = [made for made in by_index.values() if len(made) > 1]
    if not again:
        return None
    every = [check for made in by_index.values() for check in made]
    return CheckedItems(
        count=len(again),
        same=sum(len({check.checksum for check in made}) == 1 for made in again),
        moved=any(check.moved for check in every),
        are_kept=_are_kept(again),
        bytes_each=sum(check.bytes for check in every) / len(every),
        length=loader.dataset_length or 1 + max(check.largest for check in every),
    )


def _are_kept(again: list[list[Check]]) -> bool:
    """Return whether each item was twice in one place, and most in places of their own.

    New items may also lie where others were before: all in the same place.
    """
    returned = all(len({check.place for check in made}) < len(made) for made in again)
    return returned and 2 * len({made[0].place for made in again}) > len(again)

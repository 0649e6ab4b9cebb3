"""The training process makes the same items in each epoch.

What it finds
    A DataLoader with num_workers=0 whose items take at least 2 % of the training loop, though at least four of them
    were made at least twice, all were the same bytes each time, and no global random generator (Python, NumPy, PyTorch)
    moved meanwhile. perfwrap checks about twelve items of each map-style dataset.

Why it costs
    Reading, decoding and transforming an item gives the same result in each epoch. Only the first time is necessary.

How the gain is estimated
    Measured: the time to make the items (__getitem__ or __getitems__ of the dataset), without 2 µs per item to look it
    up. At best all of it disappears, as in a long training; at least nine tenths of it in all epochs but the first, in
    which the cache is filled. If workers gain more than a cache, data_loader_single_process says so instead; with
    workers, the rules about slow workers mention that the items never change.

How to fix
    Keep each item when it was made: in a list that __getitem__ fills, or by functools.lru_cache(maxsize=None). Or make
    all items once, before the training, and save them. Random transforms that are added later belong behind the cache.

When it is wrong
    When items change rarely or late: a transform that is seldom applied and has a random generator of its own, a
    dataset that changes after some epochs. When the collate function or the training changes items in place: the cache
    must then return copies. If all items need more than half of the memory, nothing is reported.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without_measured
from perfwrap.measures.data_loading.loaders import LoaderUse, find_loaders
from perfwrap.measures.data_loading.unchanged_items import CheckedItems, find_checked_items
from perfwrap.measures.data_loading.worker_need import measured_step, saved_by_workers
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.data_loading import _caching as caching
from perfwrap.rules.data_loading import _fixes as fixes
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    named,
)

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_items: int = caching.MIN_ITEMS
    """Number of items that must have been made at least twice."""
    cached_ns: int = fixes.CACHED_NS
    """Time to get an item from a cache."""
    max_memory_share: float = caching.MAX_MEMORY_SHARE
    """Share of the machine's memory that a cache may need."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for training DataLoaders without workers that make the same items again."""
    own = [
        loader for loader in evidence.get(find_loaders, trainer) if loader.training and loader.workers == 0
    ]
    if not own:
        return Clear("No training batches come from a DataLoader without workers.")
    large = [loader for loader in own if _share(loader, limits) >= limits.min_reported_share]
    if not large:
        largest = units.share(max(_share(loader, limits) for loader in own))
        return Clear(f"Making items in the training process takes {largest} of the loop.")
    same = [
        (loader, items)
        for loader in large
        if (items := caching.unchanged(evidence, trainer, loader, limits.min_items)) is not None
    ]
    if not same:
        return _why_not(evidence, trainer, large[0], limits)
    fitting = [
        (loader, items)
        for loader, items in same
        if caching.fits(evidence, trainer, items, limits.max_memory_share)
    ]
    if not fitting:
        return Clear(f"The items never change, but all of them need {units.size(same[0][1].bytes)}.")
    found = [
        _finding(evidence, trainer, loader, items, limits)
        for loader, items in fitting
        if _gains_more(evidence, trainer, loader, items, limits)
    ]
    return found or Clear("The items never change, but workers gain more than a cache.")


def _share(loader: LoaderUse, limits: Limits) -> float:
    """Return the share of the loop that makes items, without the time to get them from a cache."""
    return loader.share * fixes.item_share(loader, limits.cached_ns)


def _why_not(evidence: Evidence, trainer: Trainer, loader: LoaderUse, limits: Limits) -> Answer:
    """Return what is known of the items of a loader that is not reported."""
    items = evidence.get(find_checked_items, trainer, loader)
    if items is None or items.count < limits.min_items:
        return NotChecked(
            "Needs items that were made in several epochs and hold only tensors, arrays, text and numbers."
        )
    if items.moved:
        return Clear("Random generators are used while items are made.")
    if items.same < items.count:
        return Clear(f"{items.count - items.same} of {units.counted(items.count, 'checked item')} changed.")
    return Clear("The items never change, but are kept already.")


def _cache(loader: LoaderUse, items: CheckedItems, limits: Limits) -> Option:
    """Return the option to make each item only once."""
    share = _share(loader, limits)
    return fixes.cache(loader, items, without_measured(share)[0], share)


def _gains_more(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, items: CheckedItems, limits: Limits
) -> bool:
    """Return whether a cache gains more than workers do; they are easier to have."""
    step = measured_step(evidence, trainer, loader)
    workers = (1.0, 1.0) if step is None or loader.of_daemon else saved_by_workers(step)
    return _cache(loader, items, limits).ratio + limits.min_reported_share <= sum(workers) / 2


def _finding(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, items: CheckedItems, limits: Limits
) -> Finding:
    """Return the finding about one loader."""
    made = loader.making
    assert made is not None
    name = ".".join((made.getitem or "the dataset").removeprefix("__main__.").split(".")[-2:])
    where = named(name, made.getitem_line)
    step = measured_step(evidence, trainer, loader)
    return Finding(
        title=f"{SHARE} of the training loop makes items again that never change ({where}).",
        share=_share(loader, limits),
        evidence=(
            caching.sentence(evidence, trainer, items),
            "No global random generator moved while they were made.",
            *making.split(loader),
            *making.sampled(evidence, trainer, loader),
        ),
        options=(
            _cache(loader, items, limits),
            *(fixes.first_workers(loader, step) if step else ()),
            *(fixes.cheaper(evidence, trainer, loader, step) if step else ()),
        ),
        verdict="data-bound",
        location=locate(made.getitem_line or loader.created),
        claims=making.waits(loader),
    )

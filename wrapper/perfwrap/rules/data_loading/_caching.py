"""What rules say about items of a dataset that are the same bytes each time that they are made."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.account.what_if import NEARLY_ALL
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.unchanged_items import CheckedItems, find_checked_items, find_memory
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer

MIN_ITEMS = 4
"""Number of items that must have been made at least twice."""
MAX_KEPT_NS = 100_000
"""Time per item up to which items that lie in the same places each time are only returned, not made."""
MAX_MEMORY_SHARE = 0.5
"""Share of the machine's memory that a cache may need."""


def unchanged(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, least: int = MIN_ITEMS
) -> CheckedItems | None:
    """Return the items of a loader if they never change and are made again each time; else None."""
    found = evidence.get(find_checked_items, trainer, loader)
    if found is None or not found.never_change or found.count < least:
        return None
    each = item_ns(loader)
    return None if found.are_kept and (each is None or each <= MAX_KEPT_NS) else found


def item_ns(loader: LoaderUse) -> float | None:
    """Return the mean time to make one item; None if not recorded."""
    made = loader.making
    if made is None or made.getitem_ns is None or not loader.batch_size:
        return None
    return made.getitem_ns / loader.batch_size


def fits(evidence: Evidence, trainer: Trainer, items: CheckedItems, most: float = MAX_MEMORY_SHARE) -> bool:
    """Return whether all items fit into that share of the machine's memory, as far as that is known."""
    memory = evidence.get(find_memory, trainer.host)
    return memory is None or items.bytes <= most * memory


def sentences(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence about items that never change; nothing if they do, or if that is unknown."""
    items = unchanged(evidence, trainer, loader)
    return () if items is None else (sentence(evidence, trainer, items),)


def of_collation(evidence: Evidence, trainer: Trainer, loader: LoaderUse) -> tuple[str, ...]:
    """Return the sentence about a collate function whose items never change, whether or not they are kept."""
    items = evidence.get(find_checked_items, trainer, loader)
    if items is None or not items.never_change or items.count < MIN_ITEMS:
        return ()
    return (
        f"Its items are the same bytes each epoch ({units.count(items.same)} of {units.count(items.count)} checked): "
        "what it computes from single items could be computed once.",
    )


def sentence(evidence: Evidence, trainer: Trainer, items: CheckedItems) -> str:
    """Return how many items were the same, and the memory that a cache needs."""
    said = (
        f"The same bytes each epoch ({units.count(items.same)} of {units.count(items.count)} checked items): caching "
        f"them would take {units.size(items.bytes)}"
    )
    memory = evidence.get(find_memory, trainer.host)
    if fits(evidence, trainer, items):
        return f"{said}."
    return f"{said}, too much for the {units.size(memory)} of memory."


def details(loader: LoaderUse, items: CheckedItems) -> str:
    """Return how to make each item only once, and the memory that this needs."""
    need = f"{units.size(items.bytes)} for {units.counted(items.length, 'item')}"
    if not loader.workers:
        return (
            "Let the method fill a list on first use, or decorate it with functools.lru_cache(maxsize=None). This "
            f"needs {need}."
        )
    workers = units.counted(loader.workers, "worker")
    return (
        "Make all of them before the training, in a list, which forked workers share, or in a file. This needs "
        f"{need}. A cache that each of the {workers} fills needs persistent_workers=True and that memory in each of "
        "them."
    )


def kept_gain(loader: LoaderUse, gain: float) -> float:
    """Return the least part of a gain that a cache brings in the recorded epochs: it is filled in the first one."""
    epochs = max(2, loader.epochs)
    return NEARLY_ALL * gain * (epochs - 1) / epochs

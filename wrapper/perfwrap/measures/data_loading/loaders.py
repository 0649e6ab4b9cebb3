"""The time that each DataLoader cost the training thread, and its settings."""

from __future__ import annotations

from functools import partial

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.account.lines import Line, parse_line
from perfwrap.measures.account.loop_events import (
    LOADER,
    Events,
    Flags,
    Integers,
    LoopEvents,
)
from perfwrap.measures.account.loop_spans import thinned_sums
from perfwrap.measures.data_loading.batch_making import (
    BatchMaking,
    ReadyBatches,
    making_here,
    making_in_workers,
    ready_batches,
)
from perfwrap.measures.data_loading.workers import worker_cpu_ns
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.steps.phases import DATA, FOREVER, LOADER_START, TRAINED
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline


class LoaderUse(Struct, frozen=True):
    """One DataLoader of a training thread; figures are for the steady loop unless they say otherwise.

    Settings are None if the recorder could not read them.
    """

    name: str
    """Its name in DATA spans: ``loader/1``."""
    training: bool
    """Whether its batches were trained on; otherwise it fed validation."""
    batches: int
    wait_ns: int
    """Total of waits for batches, epoch ends and iterator starts."""
    share: float
    """Share of the account that waits for it, without garbage collection in these waits. For a loader that feeds
    validation it is ``wait_ns``, because all of that is validation there."""
    median_wait_ns: float | None
    """The median wait for one batch."""
    p99_wait_ns: float | None
    start_ns: int
    """Part of ``wait_ns``: creating iterators (starting workers), and first batches beyond the median."""
    starts: int
    """Iterators created in the steady loop."""
    median_start_ns: float | None
    """The cost of one epoch start: creating the iterator, and the first batch beyond the median."""
    epochs: int
    """Iterators created in the whole run."""
    workers: int | None
    batch_size: int | None
    pin_memory: bool | None
    prefetch_factor: int | None
    persistent_workers: bool | None
    dataset: str | None
    dataset_length: int | None
    created: Line | None
    """The user's line that created the DataLoader."""
    fetch_ns: float | None
    """The time to make one batch in one process, if known; see ``fetch_basis``."""
    fetch_basis: str
    """``measured`` (no workers: the wait is the fetch), ``measured in the workers``, or without recordings of the
    workers: ``worker cpu`` (CPU time of the workers per batch), ``throughput`` (workers were the limit: workers x time
    per batch), or ``unknown``."""
    making: BatchMaking | None = None
    """What was recorded inside it: samples, collation, workers."""
    ready: ReadyBatches | None = None
    """How many batches its workers had ready."""
    made_again: bool = False
    """Whether the program creates this loader again and again, for example in each epoch."""
    of_daemon: bool = False
    """Whether its process may have no children, and so no workers."""

    @property
    def late_share(self) -> float:
        """``share`` without receiving batches that were ready; all of it if not recorded."""
        return self.share * (1.0 - self.ready.received_share) if self.ready else self.share


MIN_LIMITING_SHARE = 0.05
"""Median wait over the median step from which workers count as the limit."""


def find_loaders(evidence: Evidence, trainer: Trainer) -> tuple[LoaderUse, ...]:
    """Return the loaders of a trainer, most wait first."""
    timeline = evidence.timeline
    steps = evidence.get(find_steps, trainer)
    account = evidence.get(find_account, trainer)
    events = steps.events
    facts = facts_of(timeline, trainer.process)
    sums = thinned_sums(account).filter(pl.col("operation").is_in(LOADER))
    cpu = worker_cpu_ns(timeline, trainer, account.start, account.end)
    found = []
    for key in np.unique(events.loader.key).tolist():
        own = sums.filter(pl.col("name") == events.names[key])
        use = _use(events, steps, account, key, own, facts)
        found.append(_with_insides(use, timeline, trainer, account, events, key))
    fed = sum(loader.batches for loader in found if loader.workers)
    with_fetch = [_with_fetch(loader, steps, cpu, fed) for loader in found]
    return tuple(sorted(with_fetch, key=lambda loader: -loader.wait_ns))


def _use(
    events: LoopEvents, steps: Steps, account: Account, key: int, sums: pl.DataFrame, facts: dict[str, str]
) -> LoaderUse:
    """Return the figures of one loader; its fetch time is still unknown."""
    own = events.loader.key == key
    loader, kind = events.loader.only(own), events.loader_kind[own]
    first_waits = events.first_waits.only(events.first_waits.key == key)
    first_waits = first_waits.only(account.holds(first_waits.start))
    iteration, use = steps.phases.iteration[own], steps.phases.use[own]
    inside = account.holds(loader.start)
    waits = (loader.end - loader.start)[inside & (kind == DATA)]
    clipped = np.minimum(loader.end, account.end) - loader.start
    alone = int((first_waits.end - first_waits.start).sum())
    wait = int(clipped[inside].sum()) + alone + int(sums["duration"].sum())
    middle = float(np.median(waits)) if waits.size else None
    begun = _epoch_starts(loader, kind, first_waits, inside, middle or 0.0)
    setting = partial(_setting, facts, events.names[key])
    is_training = bool(np.count_nonzero(use == TRAINED) * 2 > use.size)
    of_account = account.share_of((pl.col("part") == "data") & (pl.col("name") == events.names[key]))
    return LoaderUse(
        name=events.names[key],
        training=is_training,
        batches=waits.size
        + len(first_waits)
        + int(sums.filter(pl.col("operation") == "data")["count"].sum()),
        wait_ns=wait,
        share=of_account if is_training else wait / max(1, account.total_ns),
        median_wait_ns=middle,
        p99_wait_ns=float(np.quantile(waits, 0.99)) if waits.size else None,
        start_ns=int(sum(begun)),
        starts=len(begun),
        median_start_ns=float(np.median(begun)) if begun else None,
        epochs=int(np.unique(iteration).size),
        workers=_number(setting("num_workers")),
        batch_size=_number(setting("batch_size")),
        pin_memory=_flag(setting("pin_memory")),
        prefetch_factor=_number(setting("prefetch_factor")),
        persistent_workers=_flag(setting("persistent_workers")),
        dataset=setting("dataset"),
        dataset_length=_number(setting("dataset_len")),
        created=parse_line(setting("created")),
        fetch_ns=float(np.mean(waits)) if waits.size else None,
        fetch_basis="unknown",
        made_again=bool(_flag(setting("made_again"))),
        of_daemon=bool(_flag(setting("daemon"))),
    )


def _with_insides(
    use: LoaderUse, timeline: Timeline, trainer: Trainer, account: Account, events: LoopEvents, key: int
) -> LoaderUse:
    """Return the loader with what was recorded inside it."""
    own = events.loader.key == key
    waits = events.loader.only(own & (events.loader_kind == DATA))
    if not use.workers:
        return replace(use, making=making_here(timeline, trainer, account, waits))
    started = events.loader.only(own & (events.loader_kind == LOADER_START))
    inside = waits.only(account.holds(waits.start))
    return replace(
        use,
        making=making_in_workers(timeline, trainer, account, use.name, started),
        ready=ready_batches(timeline, trainer, use.name, inside),
    )


def _epoch_starts(
    loader: Events, kind: Integers, first_waits: Events, inside: Flags, middle: float
) -> list[float]:
    """Return the cost of each epoch start: its iterator, and its first batch beyond the median."""
    waits = loader.only(kind == DATA)
    start, end = (np.append(getattr(waits, name), getattr(first_waits, name)) for name in ("start", "end"))
    order = np.argsort(start)
    start, took = start[order], (end - start)[order]
    costs = []
    begun = np.flatnonzero(kind == LOADER_START)
    until = np.append(loader.start[begun], FOREVER)[1:]
    for place, following in zip(begun.tolist(), until.tolist(), strict=True):
        first = int(np.searchsorted(start, loader.end[place]))
        more = took[first] - middle if first < start.size and start[first] < following else 0.0
        if inside[place]:
            costs.append(float(loader.end[place] - loader.start[place] + max(0.0, more)))
    return costs


def _with_fetch(loader: LoaderUse, steps: Steps, cpu_ns: float | None, fed: int) -> LoaderUse:
    """Return the loader with the time to make a batch in one process, from the most reliable source.

    The measurement in the workers is most reliable. Without it: workers that the training waits for make ``workers``
    batches in the time between ``workers`` batches. Workers that it does not wait for have idle time: then their CPU
    time is the minimum per batch.
    """
    if loader.workers == 0:
        return replace(loader, fetch_basis="measured" if loader.fetch_ns is not None else "unknown")
    if loader.workers and loader.making is not None:
        return replace(loader, fetch_ns=loader.making.fetch_ns, fetch_basis="measured in the workers")
    step = steps.median_ns or 0.0
    waits = loader.training and (loader.median_wait_ns or 0.0) >= MIN_LIMITING_SHARE * step > 0
    if loader.workers and waits and loader.batches:
        between = steps.table.filter("steady")["duration"].sum() / loader.batches
        return replace(loader, fetch_ns=loader.workers * float(between), fetch_basis="throughput")
    if loader.workers and cpu_ns is not None and fed:
        return replace(loader, fetch_ns=cpu_ns / fed, fetch_basis="worker cpu")
    return replace(loader, fetch_ns=None, fetch_basis="unknown")


def _setting(facts: dict[str, str], name: str, key: str) -> str | None:
    """Return one setting of a loader, None if the recorder could not read it."""
    value = facts.get(f"{name}/{key}")
    return None if value in (None, "", "None") else value


def _number(text: str | None) -> int | None:
    """Return a whole number."""
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None


def _flag(text: str | None) -> bool | None:
    """Return a truth value."""
    return {"True": True, "1": True, "False": False, "0": False}.get(text or "")

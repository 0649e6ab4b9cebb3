"""The time to make batches inside a DataLoader: samples, collation, workers and queue."""

from __future__ import annotations

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from perfwrap.measures.account.account import Account
from perfwrap.measures.account.lines import Line, line_of
from perfwrap.measures.account.loop_events import Events, thread_spans
from perfwrap.measures.data_loading.workers import worker_processes
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

MAKING = ("fetch", "getitem", "collate")
IN_WORKERS = (*MAKING, "idle")


class SampleTimes(Struct, frozen=True):
    """The times of single samples in nanoseconds."""

    count: int
    median_ns: int
    p99_ns: int
    longest_ns: int


class BatchMaking(Struct, frozen=True):
    """The time to make one loader's batches in the steady loop, as means over its batches.

    Measured in the worker processes if the loader has some, otherwise in the training process. None if not recorded.
    """

    batches: int
    """How many were recorded, including those without detail."""
    fetch_ns: float
    """The time to make one batch in one process."""
    getitem_ns: float | None
    """Part of ``fetch_ns``: all samples of the batch."""
    collate_ns: float | None
    """Part of ``fetch_ns``: the collate function."""
    getitem: str | None
    """The method that makes samples, e.g. ``__main__.Data.__getitem__``."""
    getitem_line: Line | None
    collate: str | None
    collate_line: Line | None
    """Where both are defined; None for torch's own."""
    batch_bytes: float | None
    """The median size of the tensors."""
    samples: SampleTimes | None
    workers_seen: int = 0
    idle_share: float | None = None
    """The share of the workers' time in which they waited for requests."""
    worker_start_ns: float | None = None
    """Time from the creation of the iterator until a worker waits for its first request: median over the run."""


class ReadyBatches(Struct, frozen=True):
    """How many batches were ready when one was requested; only batches recorded in detail."""

    depth: float
    """The median number of batches that were ready."""
    overtaken: int
    """Waits in which later batches were ready before the one that was next in order."""
    overtaken_ns: int
    """Total time of these waits."""
    received_share: float = 0.0
    """The share of the wait time for batches that were ready when requested: receiving them."""


def making_here(timeline: Timeline, trainer: Trainer, account: Account, waits: Events) -> BatchMaking | None:
    """Return the times of a loader without workers, from what was recorded inside its ``waits``."""
    spans = _inside(account, thread_spans(timeline, trainer).filter(pl.col("operation").is_in(MAKING)))
    if spans.is_empty() or not len(waits):
        return None
    place = np.searchsorted(waits.start, spans["start"].to_numpy(), side="right") - 1
    own = (place >= 0) & (spans["start"].to_numpy() < waits.end[np.maximum(place, 0)])
    facts = facts_of(timeline, trainer.process)
    alone = sum(key.endswith("/num_workers") and value == "0" for key, value in facts.items()) == 1
    samples = sample_times(timeline, [trainer.process]) if alone else None
    return _making(spans.filter(pl.Series(own)), None, samples)


def making_in_workers(
    timeline: Timeline, trainer: Trainer, account: Account, name: str, started: Events
) -> BatchMaking | None:
    """Return the times of a loader's workers; ``started`` are the creations of its iterators in the whole run."""
    processes = workers_of(timeline, trainer, name)
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("parent").is_in(processes))
    tracks = threads["id"].to_list()
    spans = timeline.spans.filter(pl.col("track").is_in(tracks))
    sums = timeline.sums.filter(
        pl.col("track").is_in(tracks), pl.col("start") < account.end, pl.col("end") > account.start
    )
    inside = _inside(account, spans.filter(pl.col("operation").is_in(IN_WORKERS)))
    making = _making(inside, sums.filter(pl.col("operation") == "fetch"), sample_times(timeline, processes))
    if making is None:
        return None
    idle, fetch = (_total(inside, operation) for operation in ("idle", "fetch"))
    return replace(
        making,
        workers_seen=len(processes),
        idle_share=idle / (idle + fetch) if idle + fetch else None,
        worker_start_ns=_start_ns(spans, started),
    )


def ready_batches(timeline: Timeline, trainer: Trainer, name: str, waits: Events) -> ReadyBatches | None:
    """Return how many batches were ready at these ``waits``; None if not recorded."""
    marks = timeline.marks.filter(
        pl.col("name") == "queue", pl.col("track") == trainer.thread, pl.col("detail") == name
    )
    looked = np.isin(marks["time"].to_numpy(), waits.start)
    if not looked.any():
        return None
    value = marks["value"].to_numpy()[looked]
    times = marks["time"].to_numpy()[looked]
    ready = np.isin(waits.start, times[(value >= 1) & (value % 1 == 0)])
    took = waits.end - waits.start
    whole = int(took[np.isin(waits.start, times)].sum())
    late = marks["time"].to_numpy()[looked][value % 1 > 0]
    waited = np.isin(waits.start, late)
    return ReadyBatches(
        depth=float(np.median(np.floor(value))),
        overtaken=int(np.count_nonzero(waited)),
        overtaken_ns=int(took[waited].sum()),
        received_share=float(took[ready].sum()) / whole if whole else 0.0,
    )


def _making(
    spans: pl.DataFrame, sums: pl.DataFrame | None, samples: SampleTimes | None
) -> BatchMaking | None:
    """Return the figures from spans and sums of one loader."""
    fetches = spans.filter(pl.col("operation") == "fetch")
    whole = _total(spans, "fetch")
    if fetches.is_empty() or not whole:
        return None
    # A section of sums may extend beyond the loop; its batches count like the others.
    count = fetches.height + (int(sums["count"].sum()) if sums is not None else 0)
    total = whole + (int(sums["duration"].sum()) if sums is not None else 0)
    mean = total / count
    split = spans.filter(pl.col("operation").is_in(["getitem", "collate"])).height > 0
    getitem, collate = (_main_label(spans, operation) for operation in ("getitem", "collate"))
    sizes = spans.filter(pl.col("operation") == "collate", pl.col("value") >= 0)["value"]
    return BatchMaking(
        batches=count,
        fetch_ns=mean,
        getitem_ns=mean * _total(spans, "getitem") / whole if split else None,
        collate_ns=mean * _total(spans, "collate") / whole if split else None,
        getitem=getitem[0],
        getitem_line=getitem[1],
        collate=collate[0],
        collate_line=collate[1],
        batch_bytes=None if sizes.is_empty() else float(sizes.median()),  # type: ignore[arg-type]
        samples=samples,
    )


def _inside(account: Account, spans: pl.DataFrame) -> pl.DataFrame:
    """Return the spans that started in the account."""
    return spans.filter(pl.Series(account.holds(spans["start"].to_numpy()), dtype=pl.Boolean))


def _total(spans: pl.DataFrame, operation: str) -> int:
    """Return the nanoseconds of all spans of an operation."""
    return int(spans.filter(pl.col("operation") == operation)["duration"].sum())


def _main_label(spans: pl.DataFrame, operation: str) -> tuple[str | None, Line | None]:
    """Return name and line of the operation's label with most time."""
    named = spans.filter(pl.col("operation") == operation)
    if named.is_empty():
        return None, None
    rows = named.group_by("name", "file", "line", "function").agg(pl.col("duration").sum())
    name, file, line, function, _ = rows.sort("duration", "name", descending=True, nulls_last=True).row(0)
    return name, line_of(file, line, function)


def workers_of(timeline: Timeline, trainer: Trainer, name: str) -> list[int]:
    """Return the process tracks of a loader's workers, by the process ids that the trainer's process recorded.

    Without such facts, if only one loader has workers, all of the trainer's workers belong to it.
    """
    tracks = worker_processes(timeline, trainer)
    own = timeline.facts.filter(pl.col("track") == trainer.process)
    recorded = own.filter(pl.col("key") == f"{name}/workers")["value"].to_list()
    pids = {int(pid) for words in recorded for pid in words.split() if pid.isdecimal()}
    if not recorded:
        users = own.filter(pl.col("key").str.contains("^loader/[^/]+/num_workers$"), pl.col("value") != "0")
        return tracks if users["key"].to_list() == [f"{name}/num_workers"] else []
    return timeline.tracks.filter(pl.col("id").is_in(tracks), pl.col("pid").is_in(pids))["id"].to_list()


def _start_ns(spans: pl.DataFrame, started: Events) -> float | None:
    """Return the median time from the creation of an iterator until its workers wait for requests."""
    ready = spans.filter(pl.col("operation") == "loader_start")
    if ready.is_empty() or not len(started):
        return None
    place = np.searchsorted(started.start, ready["start"].to_numpy(), side="right") - 1
    begun = np.where(place >= 0, started.start[np.maximum(place, 0)], ready["start"].to_numpy())
    return float(np.median(ready["start"].to_numpy() + ready["duration"].to_numpy() - begun))


def sample_times(timeline: Timeline, processes: list[int]) -> SampleTimes | None:
    """Return the recorded sample times: the median of the busiest process, the longest of all."""
    recorded = [facts_of(timeline, process).get("sample_times", "").split() for process in processes]
    known = [tuple(map(int, words)) for words in recorded if len(words) == 5 and all(map(str.isdigit, words))]
    if not known:
        return None
    return SampleTimes(
        count=sum(numbers[0] for numbers in known),
        median_ns=max(known)[1],
        p99_ns=max(numbers[3] for numbers in known),
        longest_ns=max(numbers[4] for numbers in known),
    )

"""The training thread's events as arrays, and which of them make up its loop."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from perfwrap.journal_format import GRAD, INFERENCE, SPANS, TRAINING
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import once
from perfwrap.timeline.model import Timeline

Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

RECORDED = tuple(name.lower() for name in SPANS)
"""Operations that the recorder writes, or that a trace is translated to; other operations (functions, calls) would hide
the event that they are part of."""
REPEATED = "recompute"
"""The operation of activation checkpointing that computes a forward pass again."""
OPTIMIZERS = ("optimizer", "scaler_step")
LOADER = ("data", "data_end", "loader_start")
FIRST = "first data"
"""Operation of a data wait that was recorded individually although the others were summed."""
UNKNOWN = -1
"""The value of a batch of unknown size."""
SKIPPED = " skipped"
"""Suffix of the name of a scaler step that skipped its optimizer."""
NAMED = (*LOADER, FIRST, "optimizer")
"""Operations whose events are distinguished by name; the others by the line that called them."""
USES = ("sync", "transfer")
"""Operations that use a batch, or its results, outside a model."""


class Events(Struct, frozen=True):
    """Events of one kind, sorted by start; ``key`` distinguishes loaders, optimizers, models or lines."""

    start: Integers
    end: Integers
    key: Integers
    value: Integers

    def __len__(self) -> int:
        return int(self.start.size)

    def only(self, chosen: Flags) -> Events:
        """Return the chosen events."""
        return Events(self.start[chosen], self.end[chosen], self.key[chosen], self.value[chosen])


class LoopEvents(Struct, frozen=True):
    """The outermost events of the training thread.

    ``optimizer``: steps of optimizers or gradient scalers, without those called inside another one (wrappers).
    ``backward``: outside optimizers (that of a closure belongs to its optimizer). ``forward``: outside both.
    ``loader``: data waits, ends and starts of loaders; ``loader_kind`` is an index into LOADER. ``first_waits``: data
    waits at the start of epochs that were recorded individually while the others were only summed; not in ``loader``.
    ``use``: values read and tensors copied between devices.
    """

    optimizer: Events
    backward: Events
    forward: Events
    loader: Events
    loader_kind: Integers
    first_waits: Events
    use: Events
    names: tuple[str, ...]
    """The names of the keys: the name of a loader or an optimizer, otherwise name, file and line."""

    @property
    def batches(self) -> Events:
        """The data waits alone."""
        return self.loader.only(self.loader_kind == 0)


def thread_spans(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Return the recorded operations of a trainer's thread, sorted by start, the longer first."""
    key = ("thread_spans", trainer.thread)
    return once(timeline, key, lambda whole: _recorded(whole, trainer), timeline.spans.height)


def _recorded(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Return the spans of a trainer's thread in the recorder's words.

    On a GPU another thread computes the backward pass, for which the trainer's waits: recomputations there, and the
    backward passes inside of them, count as the trainer's.
    """
    spans = timeline.spans.filter(pl.col("operation").is_in(RECORDED))
    own = spans.filter(pl.col("track") == trainer.thread)
    tracks = timeline.tracks
    beside = tracks.filter(pl.col("parent") == trainer.process, pl.col("id") != trainer.thread)["id"]
    lent = spans.filter(
        pl.col("operation").is_in((REPEATED, "backward")), pl.col("track").is_in(beside.implode())
    )
    if not (lent["operation"] == REPEATED).any():
        return own
    order = ("start", "duration")
    inside = _within(_within(lent, own, "backward"), lent, REPEATED)
    return pl.concat([own, inside.select(own.columns)]).sort(
        order, descending=[False, True], maintain_order=True
    )


def _within(spans: pl.DataFrame, others: pl.DataFrame, operation: str) -> pl.DataFrame:
    """Return the spans that are inside of others of an operation, or are such ones."""
    end = (pl.col("start") + pl.col("duration")).cum_max().alias("reached")
    around = others.filter(pl.col("operation") == operation).sort("start").select("start", end)
    joined = spans.sort("start").join_asof(around, on="start", strategy="backward")
    return joined.filter(pl.col("start") + pl.col("duration") <= pl.col("reached")).drop("reached")


def loop_events(spans: pl.DataFrame, summed: Flags) -> LoopEvents:
    """Return the loop events among one thread's spans, which are sorted by start, the longer first.

    ``summed`` says which of them are where most others were only summed.
    """
    spans = spans.with_columns(
        pl.when(pl.Series(summed, dtype=pl.Boolean) & (pl.col("operation") == "data"))
        .then(pl.lit(FIRST))
        .otherwise("operation")
        .alias("operation")
    )
    used = spans.filter(
        pl.col("operation").is_in((*OPTIMIZERS, *LOADER, FIRST, "backward", "forward", *USES))
    )
    rows = used.with_columns(
        pl.when(pl.col("operation").is_in(NAMED)).then("name").otherwise(caller()).fill_null("").alias("key"),
        pl.col("value").fill_null(pl.when(pl.col("operation").is_in(LOADER)).then(UNKNOWN).otherwise(0)),
        (pl.col("start") + pl.col("duration")).alias("end"),
    )
    names = rows["key"].unique(maintain_order=True)
    rows = rows.with_columns(pl.col("key").cast(pl.Enum(names)).to_physical().cast(pl.Int64))
    optimizer = _outermost(_optimizers(rows))
    backward = _outermost(_outside(_pick(rows, "backward"), optimizer))
    forward = _outside(_outside(_pick(rows, "forward"), optimizer), backward)
    loader = _pick(rows, *LOADER)
    kinds = rows.filter(pl.col("operation").is_in(LOADER))["operation"].cast(pl.Enum(LOADER)).to_physical()
    outer = _is_outermost(loader)
    return LoopEvents(
        optimizer,
        backward,
        _outermost(forward),
        loader.only(outer),
        kinds.to_numpy().astype(np.int64)[outer],
        _pick(rows, FIRST),
        _pick(rows, *USES),
        tuple(names.to_list()),
    )


def caller() -> pl.Expr:
    """Return name, file and line of events; a scaler's name is the same whether or not it skipped its optimizer."""
    name = pl.col("name").str.strip_suffix(SKIPPED)
    return pl.concat_str([name, "file", pl.col("line").cast(pl.String)], separator=":", ignore_nulls=True)


def is_evaluation(forward: Events) -> Flags:
    """Return which forwards could not be trained on, or ran in evaluation mode."""
    return ~is_training_mode(forward) | ~has_grad(forward)


def has_grad(forward: Events) -> Flags:
    """Return which forwards ran with gradients enabled."""
    return np.asarray(forward.value & (GRAD | INFERENCE) == GRAD)


def is_training_mode(forward: Events) -> Flags:
    """Return which forwards ran with the model in training mode."""
    return np.asarray(forward.value & TRAINING != 0)


def _pick(rows: pl.DataFrame, *operations: str) -> Events:
    """Return the events of some operations."""
    found = rows.filter(pl.col("operation").is_in(operations))
    return Events(*(found[name].to_numpy() for name in ("start", "end", "key", "value")))


def _optimizers(rows: pl.DataFrame) -> Events:
    """Return optimizer and scaler steps; a scaler step has the name of its optimizer.

    A scaler step that skipped its optimizer has none inside, and neither has one of which only the end is recorded.
    """
    events = _pick(rows, *OPTIMIZERS)
    scaled = rows.filter(pl.col("operation").is_in(OPTIMIZERS))["operation"].to_numpy() == "scaler_step"
    optimizer = events.only(~scaled)
    key = events.key.copy()
    if not scaled.any() or not len(optimizer):
        return events
    inside = np.minimum(np.searchsorted(optimizer.start, events.start[scaled]), len(optimizer) - 1)
    stepped = (optimizer.start[inside] >= events.start[scaled]) & (
        optimizer.start[inside] < events.end[scaled]
    )
    meant = np.where(stepped, optimizer.key[inside], UNKNOWN)
    key[scaled] = _in_turn(events.key[scaled].tolist(), meant.tolist())
    return Events(events.start, events.end, key, events.value)


def _in_turn(lines: list[int], keys: list[int]) -> list[int]:
    """Return the optimizers of scaler steps by line; unknown ones are those that the line steps before the next known.

    A line may step several optimizers, as in a loop over them.
    """
    before: dict[tuple[int, int], int] = {}
    after: dict[tuple[int, int], int] = {}
    last: dict[int, int] = {}
    following: dict[int, int] = {}
    for line, key in zip(lines, keys, strict=True):
        earlier = last.get(line, UNKNOWN)
        if key != UNKNOWN and earlier != UNKNOWN:
            before.setdefault((line, key), earlier)
            after.setdefault((line, earlier), key)
        last[line] = key
        current = key if key != UNKNOWN else following.get(line, line)
        following[line] = after.get((line, current), current)
    found = []
    for line, key in zip(reversed(lines), reversed(keys), strict=True):
        meant = before.get((line, following[line]), following[line]) if key == UNKNOWN else key
        following[line] = meant
        found.append(meant)
    return found[::-1]


def _is_outermost(events: Events) -> Flags:
    """Return which events are not inside an earlier one of the same kind."""
    if not len(events):
        return np.zeros(0, dtype=np.bool_)
    reached = np.maximum.accumulate(events.end)
    return np.concatenate([[True], events.start[1:] >= reached[:-1]])


def _outermost(events: Events) -> Events:
    """Return the events that are not inside an earlier one of the same kind."""
    return events.only(_is_outermost(events))


def _outside(events: Events, other: Events) -> Events:
    """Return the events that are not inside one of the others, which do not overlap each other."""
    if not len(other) or not len(events):
        return events
    place = np.searchsorted(other.start, events.start, side="right") - 1
    inside = (place >= 0) & (events.end <= other.end[np.maximum(place, 0)])
    return events.only(~inside)

"""How models are spread over processes, and what their wrappers measured."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from perfwrap.measures.lines import Line, parse_line
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

SETTLED = 10
"""Backward passes before this one are warm-up: buckets are built anew in the first ones."""


@dataclass(frozen=True)
class SpreadModel:
    """One model of DDP's, FSDP's or ``DataParallel``'s in one process; None where it was not told.

    ``exchange_ns`` is the median of what one backward pass took to exchange gradients after it had computed them,
    as DDP's own logger measured it; it holds the wait for slower ranks.
    """

    kind: str
    where: Line | None
    world_size: int | None
    devices: int | None
    find_unused_parameters: bool
    static_graph: bool
    broadcast_buffers: bool
    buffers: int
    exchange_ns: float | None
    unused_bytes: int | None
    iterations: int
    buffer_broadcast_ns: float | None
    """What sending the buffers to all ranks takes, each time."""
    post_forward_ns: float | None
    """What DDP does after each forward pass: looking for unused parameters is nearly all of it."""


def find_spread_models(timeline: Timeline, trainer: Trainer) -> tuple[SpreadModel, ...]:
    """Return the models of a trainer's process that are spread, in the order in which they were first seen."""
    facts = facts_of(timeline, trainer.process)
    prefixes = [key[: -len("kind")] for key in facts if key.startswith("parallel/") and key.endswith("/kind")]
    return tuple(_model(timeline, trainer, facts, prefix) for prefix in prefixes)


def has_no_sync(timeline: Timeline, trainer: Trainer) -> bool:
    """Say whether a model was called inside of ``no_sync``."""
    return any(key.startswith("no_sync/") for key in facts_of(timeline, trainer.process))


def _model(timeline: Timeline, trainer: Trainer, facts: dict[str, str], prefix: str) -> SpreadModel:
    def number(key: str) -> int | None:
        text = facts.get(prefix + key, "")
        return int(text) if text.isdigit() else None

    return SpreadModel(
        kind=facts[prefix + "kind"],
        where=parse_line(facts.get(prefix + "line")),
        world_size=number("world_size"),
        devices=number("devices"),
        find_unused_parameters=facts.get(prefix + "find_unused_parameters") == "True",
        static_graph=facts.get(prefix + "static_graph") == "True",
        broadcast_buffers=facts.get(prefix + "broadcast_buffers") == "True",
        buffers=number("buffers") or 0,
        exchange_ns=_exchange(timeline, trainer, prefix),
        unused_bytes=number("unused_bytes"),
        iterations=number("iteration") or 0,
        buffer_broadcast_ns=number("buffer_broadcast_ns"),
        post_forward_ns=number("post_forward_ns"),
    )


def _exchange(timeline: Timeline, trainer: Trainer, prefix: str) -> float | None:
    """Return the median of what of the exchange was not hidden, over the passes that DDP measured."""
    names = [prefix + name for name in ("iteration", "exchange_ns", "exchange_overlap_ns")]
    told = timeline.facts.filter(pl.col("track") == trainer.process, pl.col("key").is_in(names))
    iterations, took, hidden = (
        [int(value) for value in told.filter(pl.col("key") == name)["value"]] for name in names
    )
    rows = [
        (iteration, max(0, whole - overlap))
        for iteration, whole, overlap in zip(iterations, took, hidden, strict=False)
        if whole > 0
    ]
    settled = [value for iteration, value in rows if iteration >= SETTLED] or [value for _, value in rows]
    return float(pl.Series(settled).median()) if settled else None  # type: ignore[arg-type]

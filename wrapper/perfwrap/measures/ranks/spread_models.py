"""Models that are distributed over processes, and the measurements of their wrappers."""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap.measures.account.lines import Line, parse_line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

WARM_UP_PASSES = 10
"""Backward passes before this one are warm-up: buckets are rebuilt in the first ones."""


class SpreadModel(Struct, frozen=True):
    """One model of DDP, FSDP or ``DataParallel`` in one process; None if not recorded.

    ``exchange_ns`` is the median time to exchange gradients after one backward pass had computed them, as measured by
    DDP's own logger; it includes the wait for slower ranks.
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
    """The time to send the buffers to all ranks, each time."""
    post_forward_ns: float | None
    """The time of DDP after each forward pass; nearly all of it is the search for unused parameters."""


def find_spread_models(evidence: Evidence, trainer: Trainer) -> tuple[SpreadModel, ...]:
    """Return the distributed models of a trainer's process, in the order in which they were first seen."""
    facts = facts_of(evidence.timeline, trainer.process)
    prefixes = [key[: -len("kind")] for key in facts if key.startswith("parallel/") and key.endswith("/kind")]
    return tuple(_model(evidence.timeline, trainer, facts, prefix) for prefix in prefixes)


def has_no_sync(timeline: Timeline, trainer: Trainer) -> bool:
    """Return whether a model was called inside ``no_sync``."""
    return any(key.startswith("no_sync/") for key in facts_of(timeline, trainer.process))


def _model(timeline: Timeline, trainer: Trainer, facts: dict[str, str], prefix: str) -> SpreadModel:
    def number(key: str) -> int | None:
        text = facts.get(prefix + key, "")
        return int(text) if text.isdecimal() else None

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
    """Return the median exchange time without overlap, over the passes that DDP measured."""
    names = [prefix + name for name in ("iteration", "exchange_ns", "exchange_overlap_ns")]
    recorded = timeline.facts.filter(pl.col("track") == trainer.process, pl.col("key").is_in(names))
    iterations, took, hidden = (
        [int(value) for value in recorded.filter(pl.col("key") == name)["value"]] for name in names
    )
    rows = [
        (iteration, max(0, whole - overlap))
        for iteration, whole, overlap in zip(iterations, took, hidden, strict=False)
        if whole > 0
    ]
    later = [value for iteration, value in rows if iteration >= WARM_UP_PASSES]
    chosen = later or [value for _, value in rows]
    return float(pl.Series(chosen).median()) if chosen else None  # type: ignore[arg-type]

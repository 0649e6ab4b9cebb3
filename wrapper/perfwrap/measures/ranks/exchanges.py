"""When each rank was in an exchange that ends only after every other rank has arrived."""

from __future__ import annotations

import numpy as np
import polars as pl

from perfwrap.journal_format import LEAD_BITS
from perfwrap.measures.account.loop_events import thread_spans
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.spread_models import find_spread_models, has_no_sync
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer
from perfwrap.timeline.lookup import facts_of
from perfwrap.timeline.model import Timeline

EXCHANGES = {"step": pl.Int64, "begin": pl.Int64, "end": pl.Int64}

FOR_ALL = r"^(?:barrier|all_reduce|all_gather\w*|all_to_all\w*|reduce_scatter\w*|_?all_gather_base)$"
"""Calls on the group of all ranks that none can leave before all have arrived; a broadcast's source leaves at once."""
HOST_WAITS = ("gloo", "mpi")
"""Backends whose calls return after the exchange; NCCL only enqueues it."""
REPLICATED = ("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard")
"""Models whose timed backward pass ends after the gradients were exchanged among all ranks."""
US, LEAD_MASK = 1_000, (1 << LEAD_BITS) - 1


def find_exchanges(evidence: Evidence, trainer: Trainer) -> pl.DataFrame:
    """Return the last exchange of each step in detail, with the columns of EXCHANGES, sorted by step.

    By GPU events where there are any; else by the host's calls, if the backend makes the host wait for the others.
    Empty if neither is available.
    """
    timeline, steps = evidence.timeline, evidence.get(find_steps, trainer)
    if not steps.count:
        return pl.DataFrame(schema=EXCHANGES)
    facts = facts_of(timeline, trainer.process)
    kinds = {model.kind for model in evidence.get(find_spread_models, trainer)}
    spreads = bool(kinds & set(REPLICATED)) and not has_no_sync(timeline, trainer)
    found = _on_gpu(timeline, trainer) if spreads else pl.DataFrame()
    if found.is_empty():
        if not any(name in facts.get("distributed_backend", "") for name in HOST_WAITS):
            return pl.DataFrame(schema=EXCHANGES)
        found = _on_host(timeline, trainer, spreads)
    table = steps.table
    place = np.searchsorted(table["end"].to_numpy(), found["moment"].to_numpy(), side="left")
    inside = place < table.height
    numbered = found.filter(inside).with_columns(
        table["index"].gather(place[inside]).alias("step"), table["detailed"].gather(place[inside])
    )
    last = numbered.filter("detailed").sort("end").group_by("step", maintain_order=True).last()
    return last.select(pl.col(name).cast(kind) for name, kind in EXCHANGES.items()).sort("step")


def _on_host(timeline: Timeline, trainer: Trainer, spreads: bool) -> pl.DataFrame:
    """Return the training thread's exchanges: the program's own calls, and backward passes that contain one."""
    spans = thread_spans(timeline, trainer)
    own = (pl.col("operation") == "collective") & pl.col("name").str.contains(FOR_ALL).fill_null(False)
    wanted = own | (pl.col("operation") == "backward") if spreads else own
    end = pl.col("start") + pl.col("duration")
    return spans.filter(wanted).select(pl.col("start").alias("begin"), end.alias("end"), end.alias("moment"))


def _on_gpu(timeline: Timeline, trainer: Trainer) -> pl.DataFrame:
    """Return the GPU's backward passes; ``moment`` is when the host was at their start."""
    streams = timeline.tracks.filter(pl.col("kind") == "stream", pl.col("parent") == trainer.process)["id"]
    lead = (pl.col("value").cast(pl.Int64) // (1 << 8)) & LEAD_MASK
    return timeline.spans.filter(
        pl.col("track").is_in(streams.implode()), pl.col("operation") == "gpu", pl.col("name") == "backward"
    ).select(
        pl.col("start").alias("begin"),
        (pl.col("start") + pl.col("duration")).alias("end"),
        (pl.col("start") - lead * US).alias("moment"),
    )

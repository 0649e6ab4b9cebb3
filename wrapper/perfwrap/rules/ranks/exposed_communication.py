"""Communication between ranks does not overlap with computation.

What it finds
    Time, in a record of the GPU's kernels, in which NCCL or RCCL kernels ran and no other kernel: at least 2 % of the
    recorded time. On the CPUs of several machines, the measurement of DDP's own logger: how long gradients are
    exchanged after the backward pass has computed everything, on the rank that waits least for others; at least 2 % of
    a step.

Why it costs
    Gradients can be exchanged while the rest of the backward pass is computed. Communication without overlap makes the
    step longer. A collective also waits for the slowest rank: part of this time may be waiting.

How the gain is estimated
    Measured: at best all of that time disappears, at worst a quarter, because the last bucket has nothing to overlap
    with. On CPUs estimated from the few steps that DDP's logger measures.

How to fix
    In DDP: gradient_as_bucket_view, other bucket sizes (bucket_cap_mb), static_graph, no_sync() while accumulating,
    bfloat16 compression hooks. In FSDP: prefetch the next shards. Faster links, fewer ranks per step.

When it is wrong
    If another rank is late, fix the cause on that rank first. The rank table shows which one it is. If different ranks
    are late in different steps, each waits for another in some steps, and the figure includes that.
"""

from __future__ import annotations

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.intervals import length
from perfwrap.measures.account.loop_figures import mean_in_loop, mean_step_ns, trains_on_gpu
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.collective_bursts import find_collective_bursts
from perfwrap.measures.kernels.gpu_activity import gpu_of
from perfwrap.measures.precision import find_half_precision
from perfwrap.measures.ranks.exchange_gap import exchange_gap_ns
from perfwrap.measures.ranks.spread_models import SpreadModel, find_spread_models
from perfwrap.measures.trainers import Trainer, find_trainers
from perfwrap.rules.kernel_record import loop_share, recorded, window
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    Scope,
    locate,
    named,
)
from perfwrap.rules.needs import why_missing
from perfwrap.rules.ranks._spread_models import least_exchange_ns

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE
    min_gap_share: float = 0.1
    """Share of the exposed time before the optimizer from which it is mentioned."""
    small_share: float = 0.5
    """Share of the exposed time in rows of small collectives from which that is the problem."""
    min_hidden_share: float = 0.25
    """Share of the exposed time that can be overlapped at worst."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for collectives without overlap, or without a GPU for the measurements of DDP's logger."""
    models = [model for model in evidence.get(find_spread_models, trainer) if (model.world_size or 0) > 1]
    if models and evidence.get(gpu_of, trainer) is None and not trains_on_gpu(evidence, trainer):
        return _on_cpu(evidence, trainer, models[0], limits)
    missing = evidence.get(why_missing, "kernels")
    if missing is not None:
        return NotChecked(missing)
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    collectives = gpu.events.table.filter(pl.col("nccl"))
    exposed = length(gpu.exposed_collectives)
    bursts = evidence.get(find_collective_bursts, gpu)
    if bursts is not None and bursts.alone_ns >= limits.small_share * exposed:
        return Clear(
            f"{units.share(bursts.alone_ns / max(1, exposed))} of the communication without overlap is small "
            "collectives (see small_collectives)."
        )
    share = loop_share(evidence, trainer, gpu, exposed)
    if share < limits.min_reported_share:
        return Clear(
            f"{units.counted(collectives.height, 'collective')} ran alone {units.share(share)} of the recorded time."
        )
    return [
        Finding(
            title=f"{SHARE} of the GPU's time is communication that overlaps with no computation.",
            share=share,
            evidence=(
                f"In {window(gpu)}: {units.counted(collectives.height, 'collective')} took "
                f"{units.duration(gpu.collective_ns)}, {units.duration(exposed)} of it without overlap.",
                *_between(evidence.get(exchange_gap_ns, gpu, trainer), exposed, limits),
            ),
            options=(
                Option(
                    "Overlap more communication with the backward pass: bucket sizes, gradient_as_bucket_view, "
                    "prefetching in FSDP.",
                    (1.0 - share, 1.0 - share * limits.min_hidden_share),
                    f"{units.duration(exposed)} of communication without overlap",
                    details="Check whether one rank is late.",
                ),
                Option("Call no_sync() while gradients are accumulated.", (1.0 - share, 1.0)),
            ),
            verdict="communication-bound",
            scope=Scope.WINDOW,
        )
    ]


def _on_cpu(evidence: Evidence, trainer: Trainer, model: SpreadModel, limits: Limits) -> Answer:
    """Check how long the ranks exchange gradients after the last one has been computed.

    Ranks on one machine share its cores and wait for each other in some steps, and DDP's measurement may be only that.
    """
    if len({rank.host for rank in evidence.get(find_trainers)}) < 2:
        return NotChecked("All ranks use the CPU of one machine, where they also wait for each other.")
    few = evidence.get(why_missing, "steady_steps")
    if few is not None:
        return NotChecked(few)
    least, step = least_exchange_ns(evidence), max(1.0, mean_step_ns(evidence, trainer))
    if isinstance(least, NotChecked):
        return least
    share = min(1.0, least / step)
    half = evidence.get(find_half_precision, trainer)
    hooks = "PowerSGD" if half and not half.by_autocast else "bfloat16 or PowerSGD"
    exchange = f"{units.duration(least)} of a step of {units.duration(step)}"
    if share < limits.min_reported_share:
        return Clear(f"The gradient exchange takes {exchange} on the rank that waits least.")
    return [
        Finding(
            title=f"{SHARE} of the time {named('DDP', model.where)} exchanges gradients while nothing is computed.",
            share=share,
            evidence=(
                f"After the backward pass has computed everything, the exchange continues for {exchange} (measured by "
                "DDP's own logger in some steps, on the rank that waits least).",
                *_network(evidence, trainer),
            ),
            options=(
                Option(
                    f"Send less: {hooks} compression hooks.",
                    (1.0 - share, 1.0 - share * limits.min_hidden_share),
                    f"the exchange takes {exchange}",
                ),
                Option(
                    "Step less often: larger batches, or no_sync() while accumulating.", (1.0 - share, 1.0)
                ),
                Option("Use a faster network.", (1.0 - share, 1.0)),
            ),
            verdict="communication-bound",
            location=locate(model.where),
            confidence="inferred",
        )
    ]


def _network(evidence: Evidence, trainer: Trainer) -> tuple[str, ...]:
    """Return the network traffic of the trainer's machine."""
    sent, received = (
        mean_in_loop(evidence, trainer, "host", f"network_{way}_bytes_per_s") for way in ("send", "receive")
    )
    if sent is None or received is None:
        return ()
    return (
        f"Meanwhile {trainer.host} sent {units.size(sent)} and received {units.size(received)} per second over its "
        "network.",
    )


def _between(gap_ns: int | None, exposed_ns: int, limits: Limits) -> tuple[str, ...]:
    """Return how much of it is between the backward pass and the optimizer, the usual place."""
    if gap_ns is None or gap_ns < limits.min_gap_share * exposed_ns:
        return ()
    return (
        f"{units.share(min(1.0, gap_ns / exposed_ns))} of that is between the end of the backward pass and the "
        "optimizer, which waits for it.",
    )

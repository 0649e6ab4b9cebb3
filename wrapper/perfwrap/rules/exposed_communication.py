"""Collectives run while the GPU computes nothing.

What it finds
    Time, in a record of the GPU's kernels, during which kernels of NCCL or RCCL ran and no other kernel: 2 % of the
    recorded time or more. On the CPUs of several machines, what DDP's own logger measured: for how long gradients are
    exchanged after the backward pass has computed everything, on the rank that waits least for others; 2 % of a step
    or more.

Why it costs
    Gradients can be exchanged while the rest of the backward pass is computed. What is exchanged alone makes the step
    longer. A collective also lasts until the slowest rank has come: a part of this time may be waiting for another one.

How the saving is worked out
    Measured: at best all of that time goes, at worst a quarter of it: the last bucket has nothing to hide behind. On
    CPUs inferred, from the few steps that DDP's logger looks at.

How to fix
    In DDP: gradient_as_bucket_view, other bucket sizes (bucket_cap_mb), static_graph, no_sync() for steps that
    accumulate, bfloat16 compression hooks. In FSDP: prefetch of the next shards. Faster links, fewer ranks per step.

When it is wrong
    When another rank is late: its own cause is the thing to mend. The ranks side by side tell which. Where ranks are
    late in turn, each waits for another in some steps, and that is in the figure, too.
"""

from __future__ import annotations

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.intervals import length
from perfwrap.measures.loop import mean_step_ns, trains_on_gpu
from perfwrap.measures.spread_models import SpreadModel
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import recorded, window
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, named
from perfwrap.rules.spread import least_exchange_ns

NEEDS = ("trainer",)

LEAST_GAP = 0.1
"""Of the exposed time, from which what stands before the optimizer is worth a word."""

LEAST_HIDDEN = 0.25
"""Of the exposed time, what can be hidden at worst."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for collectives that no other kernel hides, or where there is no GPU at what DDP's logger measured."""
    models = [model for model in evidence.spread_models(trainer) if (model.world_size or 0) > 1]
    if models and evidence.gpu_of(trainer) is None and not trains_on_gpu(evidence, trainer):
        return _on_cpu(evidence, trainer, models[0])
    missing = evidence.missing("kernels")
    if missing is not None:
        return NotChecked(missing)
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    collectives = gpu.events.table.filter(pl.col("nccl"))
    exposed = length(gpu.exposed_collectives)
    share = exposed / gpu.window_ns
    if share < QUIET_SHARE:
        return Clear(
            f"{units.counted(collectives.height, 'collective')} ran alone {units.share(share)} of the recorded time."
        )
    return [
        Finding(
            title=f"{SHARE} of the GPU's time goes to collectives that nothing is computed beside.",
            share=share,
            saving=(1.0 - share, 1.0 - share * LEAST_HIDDEN),
            evidence=(
                f"Seen in {window(gpu)}: {units.counted(collectives.height, 'collective')} took "
                f"{units.duration(gpu.collective_ns)}, {units.duration(exposed)} of it alone.",
                *_between(evidence.exchange_gap_ns(gpu, trainer), exposed),
            ),
            advice="Let more of the exchange run beside the backward pass (bucket sizes, gradient_as_bucket_view, "
            "no_sync() while accumulating, FSDP's prefetching), and see whether one rank is late.",
            verdict="communication-bound",
            of_window=True,
        )
    ]


def _on_cpu(evidence: Evidence, trainer: Trainer, model: SpreadModel) -> Answer:
    """Look at how long the ranks exchange gradients after the last one of them has been computed.

    Ranks of one machine share its cores and are late in turn: each waits for another in some steps, and nothing but
    that may be what DDP measured.
    """
    if len({rank.host for rank in evidence.trainers}) < 2:
        return NotChecked(
            "All ranks are on the CPU of one machine, where they also wait for each other's turn on it."
        )
    few = evidence.missing("steady_steps")
    if few is not None:
        return NotChecked(few)
    least, step = least_exchange_ns(evidence), max(1.0, mean_step_ns(evidence, trainer))
    if isinstance(least, NotChecked):
        return least
    share = min(1.0, least / step)
    told = f"{units.duration(least)} of a step of {units.duration(step)}"
    if share < QUIET_SHARE:
        return Clear(f"On the rank that waits least {told} go to exchanging gradients.")
    return [
        Finding(
            title=f"{SHARE} of the time {named('DDP', model.where)} exchanges gradients while nothing is computed.",
            share=share,
            saving=(1.0 - share, 1.0 - share * LEAST_HIDDEN),
            evidence=(
                f"After the backward pass has computed everything the exchange goes on for {told}, as DDP's own logger "
                "measured in some steps on the rank that waits least.",
                *_network(evidence, trainer),
            ),
            advice="Exchange less (bfloat16 or PowerSGD compression hooks, no_sync() while accumulating), step less "
            "often (larger batches), or give the ranks a faster network.",
            verdict="communication-bound",
            location=locate(model.where),
            confidence="inferred",
        )
    ]


def _network(evidence: Evidence, trainer: Trainer) -> tuple[str, ...]:
    """Return what the network of the trainer's machine carried."""
    sent, received = (
        evidence.mean_in_loop(trainer, "host", f"network_{way}_bytes_per_s") for way in ("send", "receive")
    )
    if sent is None or received is None:
        return ()
    return (
        f"Meanwhile {trainer.host} sent {units.size(sent)} and received {units.size(received)} a second over its "
        "network.",
    )


def _between(gap_ns: int | None, exposed_ns: int) -> tuple[str, ...]:
    """Return how much of it stands between the backward pass and the optimizer, the usual place."""
    if gap_ns is None or gap_ns < LEAST_GAP * exposed_ns:
        return ()
    return (
        f"{units.share(min(1.0, gap_ns / exposed_ns))} of that stands between the end of the backward pass and the "
        "optimizer, which waits for it.",
    )

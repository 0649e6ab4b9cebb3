"""Many small collectives, one after the other, take the time that few large ones would not.

What it finds
    In a record of the GPU's kernels: rows of at least 20 NCCL or RCCL kernels that follow each other within 1 ms and
    whose median takes less than 200 µs, with computation in at most half of the row, if they run alone, and leave the
    GPU idle directly before and after them, for at least 2 % of the recorded time.

Why it costs
    Each collective costs its launch on the host (some 50 to 300 µs in PyTorch) and the latency of the links (some 10 to
    50 µs), however few bytes it sends. Hundreds of them per step, one per tensor, take many times as long as a few that
    send the same bytes, and none of them overlaps with the backward pass.

How the gain is estimated
    Estimated: at best all of that time disappears, because buckets overlap with the backward pass; at worst half of it.

How to fix
    Gradients: DistributedDataParallel, which exchanges them in buckets of 25 MB (bucket_cap_mb) during the backward
    pass. By hand: one collective for all tensors together (flatten or concatenate them) instead of a loop over
    parameters. Metrics: gather them in one tensor, every N steps.

When it is wrong
    In a recording of a model whose layers exchange activations (tensor or expert parallelism) and cannot wait: larger
    batches make these collectives larger, not fewer.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.collective_bursts import CollectiveBursts, find_collective_bursts
from perfwrap.measures.kernels.gpu_activity import GpuActivity
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.kernel_record import loop_share, recorded, window
from perfwrap.rules.model import MIN_REPORTED_SHARE, SHARE, Answer, Clear, Finding, NotChecked, Option, Scope

NEEDS = ("trainer", "kernels")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_reported_share: float = MIN_REPORTED_SHARE


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for rows of small collectives."""
    gpu = recorded(evidence, trainer)
    if isinstance(gpu, NotChecked):
        return gpu
    bursts = evidence.get(find_collective_bursts, gpu)
    if bursts is None:
        return Clear("There are no rows of small collectives.")
    share = loop_share(evidence, trainer, gpu, bursts.alone_ns + bursts.idle_ns)
    if share < limits.min_reported_share:
        return Clear(f"Rows of small collectives take {units.share(share)} of the time.")
    return [
        Finding(
            title=f"{SHARE} of the GPU's time goes to {_many(gpu, bursts)}, one after the other.",
            share=share,
            evidence=(
                f"In {window(gpu)}: {units.counted(bursts.count, 'collective')} with a median of "
                f"{units.duration(bursts.median_ns)} run {units.duration(bursts.alone_ns)} without any computation, "
                f"and the GPU is idle {units.duration(bursts.idle_ns)} directly before and after them, while the host "
                "launches the next.",
            ),
            options=(
                Option(
                    "Exchange gradients in buckets: DistributedDataParallel with its bucket_cap_mb of 25 or more.",
                    without(share),
                    f"{units.counted(bursts.count, 'collective')}, {units.duration(bursts.median_ns)} each",
                    details="Buckets overlap with the backward pass. Keep find_unused_parameters off, and set "
                    "gradient_as_bucket_view=True.",
                ),
                Option(
                    "Flatten the tensors into one and exchange that, instead of one collective per tensor.",
                    without(share),
                ),
            ),
            verdict="communication-bound",
            confidence="inferred",
            scope=Scope.WINDOW,
        )
    ]


def _many(gpu: GpuActivity, bursts: CollectiveBursts) -> str:
    """Return how many collectives there are, per step if steps are marked."""
    steps = gpu.steps.table.height
    if not steps:
        return units.counted(bursts.count, "small collective")
    return f"{units.number(bursts.count / steps, 3)} small collectives per step"

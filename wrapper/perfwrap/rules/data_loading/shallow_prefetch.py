"""The workers are fast enough on average, but their prefetch queue is too short for bursts.

What it finds
    A DataLoader that the training waits for during at least 2 % of the loop although its workers are idle at least 10 %
    of their time, where a larger prefetch_factor would remove at least half of the wait.

Why it costs
    Slow batches, or several fast steps in a row, empty the queue. When it is full again, the workers stop, so the
    batches that they could have made are missing at the next burst.

How the gain is estimated
    The loader's queue is simulated with the measured times of making and using each batch, as it is and with longer
    queues. The fix is the smallest prefetch_factor that is about as good as any. The range comes from simulating the
    whole loop and each half of it: other runs have other bursts.

How to fix
    Pass this prefetch_factor to the DataLoader. It needs memory for workers x prefetch_factor batches.

When it is wrong
    When memory or /dev/shm is too small for so many batches. When the bursts come from other programs that shared the
    machine during the recording.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.data_loading.batch_flow import BatchFlow, find_batch_flow
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_need import DEFAULT_PREFETCH
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, Option, locate, named

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_idle_share: float = 0.1
    """Idle share of the workers from which they have spare time."""
    min_wait_share: float = 0.5
    """Share of the wait that a longer queue must remove to count as the fix."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for queues that run empty although the workers are fast enough."""
    loaders, answer = making.in_workers(evidence, trainer)
    if answer is not None:
        return answer
    calm = [loader for loader in loaders if not making.is_starved(evidence, trainer, loader)]
    if not calm:
        return NotChecked(making.BUSY_CPU)
    flows = [(loader, evidence.get(find_batch_flow, trainer, loader)) for loader in calm]
    known = [(loader, flow) for loader, flow in flows if flow is not None]
    if not known:
        return NotChecked("Too few batches were recorded in detail to simulate the prefetch queue.")
    found = [_finding(loader, flow) for loader, flow in known if _is_short(loader, flow, limits)]
    return found or Clear("A longer queue would not remove half of the wait.")


def _is_short(loader: LoaderUse, flow: BatchFlow, limits: Limits) -> bool:
    """Return whether the short queue causes the wait."""
    idle = 0.0 if loader.making is None else loader.making.idle_share or 0.0
    gained = flow.now_ns - flow.deeper_ns
    return (
        idle >= limits.min_idle_share
        and gained >= limits.min_wait_share * (flow.measured_ns - flow.rest_ns) > 0
    )


def _finding(loader: LoaderUse, flow: BatchFlow) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    made = loader.making
    today = loader.prefetch_factor or DEFAULT_PREFETCH
    words = [
        f"Workers are idle {units.share(made.idle_share if made else None)} of their time, so they are fast enough on "
        "average.",
        f"A wait takes {units.duration(loader.median_wait_ns)} (median), {units.duration(loader.p99_wait_ns)} "
        "(p99).",
        f"Simulated prefetch queue: one batch per {units.duration(flow.now_ns)} as recorded; with "
        f"prefetch_factor={flow.prefetch}, one per {units.duration(flow.deeper_ns)}.",
    ]
    if made is not None and made.batch_bytes:
        size = made.batch_bytes * (loader.workers or 1) * flow.prefetch
        words.append(f"These batches need up to {units.size(size)} of memory.")
    return Finding(
        title=f"{SHARE} of the training loop waits for {where}: its prefetch queue of "
        f"{units.counted(today * (loader.workers or 1), 'batch', 'batches')} is too short for bursts.",
        share=loader.late_share,
        evidence=tuple(words),
        options=(
            Option(
                f"Pass prefetch_factor={flow.prefetch} instead of {today} to {where}.",
                flow.saving,
                f"{units.duration(flow.deeper_ns)} instead of {units.duration(flow.now_ns)} per batch, simulated",
                f"prefetch={flow.prefetch}",
            ),
        ),
        verdict="data-bound",
        location=locate(loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )

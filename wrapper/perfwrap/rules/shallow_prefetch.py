"""The workers keep up on average, but their queue is too short for the bursts.

What it finds
    A DataLoader that the training waits for during 2 % of the loop or more although its workers have time to spare
    (they wait for orders 10 % of their time or more), where a larger prefetch_factor would remove at least half of
    the wait.

Why it costs
    Slow batches, or several steps that are fast in a row, empty the queue; once it is full again the workers stop and
    wait, so what they could have made ahead is missing at the next burst.

How the saving is worked out
    The measured times of making each batch and of using it are played through the loader's queue, as it is and with
    longer ones. The smallest prefetch_factor that is about as good as any is advised; the far end of the range keeps
    half of the gain.

How to fix
    Pass the advised prefetch_factor to the DataLoader. It takes memory: workers x prefetch_factor batches.

When it is wrong
    When memory or /dev/shm is too small for so many batches. When the bursts are those of a machine that was
    shared with others while it was recorded.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.batch_flow import BatchFlow
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.rules import making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, NotChecked, locate, named

NEEDS = ("data", "steady_steps")

IDLE_SHARE = 0.1
"""Share of their time in which workers wait for orders, from which they have time to spare."""

LEAST_OF_WAIT = 0.5
"""Share of the wait that a longer queue must remove to be its remedy."""

KEPT = 0.5
"""The least part of the gain that is promised: other runs have other bursts."""

DEFAULT = 2
"""torch's own prefetch_factor."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for queues that run empty although the workers keep up."""
    loaders, answer = making.in_workers(evidence, trainer)
    if answer is not None:
        return answer
    calm = [loader for loader in loaders if not making.denied(evidence, trainer, loader)]
    if not calm:
        return NotChecked(making.DENIED)
    flows = [(loader, evidence.batch_flow(trainer, loader)) for loader in calm]
    known = [(loader, flow) for loader, flow in flows if flow is not None]
    if not known:
        return NotChecked("Too few batches stand in detail to play them through the queue.")
    found = [_finding(loader, flow) for loader, flow in known if _is_short(loader, flow)]
    return found or Clear("A longer queue would not remove half of the wait.")


def _is_short(loader: LoaderUse, flow: BatchFlow) -> bool:
    """Say whether the queue is what the training waits for."""
    idle = 0.0 if loader.making is None else loader.making.idle_share or 0.0
    gained = flow.now_ns - flow.deeper_ns
    return idle >= IDLE_SHARE and gained >= LEAST_OF_WAIT * (flow.measured_ns - flow.rest_ns) > 0


def _finding(loader: LoaderUse, flow: BatchFlow) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    best = min(1.0, flow.deeper_ns / flow.now_ns)
    made = loader.making
    today = loader.prefetch_factor or DEFAULT
    words = [
        f"Workers wait for orders {units.share(made.idle_share if made else None)} of their time: they keep up on "
        "average.",
        f"A wait takes {units.duration(loader.median_wait_ns)} as a median and {units.duration(loader.p99_wait_ns)} "
        "at p99.",
        f"Played through the queue as recorded, a batch comes every {units.duration(flow.now_ns)}; with "
        f"prefetch_factor={flow.prefetch} it would every {units.duration(flow.deeper_ns)}.",
    ]
    if made is not None and made.batch_bytes:
        size = made.batch_bytes * (loader.workers or 1) * flow.prefetch
        words.append(f"That many batches take {units.size(size)} at most.")
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for {where}, whose queue of "
        f"{units.counted(today * (loader.workers or 1), 'batch', 'batches')} is too short for its bursts.",
        share=loader.late_share,
        saving=(best, 1.0 - KEPT * (1.0 - best)),
        evidence=tuple(words),
        advice=f"Pass prefetch_factor={flow.prefetch} instead of {today} to {where}.",
        verdict="data-bound",
        location=locate(loader.created),
        experiment=f"prefetch={flow.prefetch}",
        confidence="inferred",
        claims=making.waits(loader),
    )

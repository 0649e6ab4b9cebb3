"""One worker is much slower than the others, and all wait for it.

What it finds
    A DataLoader that the training waits for during at least 2 % of the loop, whose slowest worker takes at least twice
    as long per batch as the median of the others.

Why it costs
    Batches are delivered in order: the ready batches of other workers wait for the slowest one, so the loop runs at its
    pace and the others are idle.

How the gain is estimated
    Simulated: the same loop, workers and queue, with every batch at the mean time of all batches. A range that includes
    what the run cannot know, such as the cores that other programs take. At least half of the gain at the favourable
    end is assumed: work is never divided exactly.

How to fix
    Split every shard among the workers instead of giving each whole shards, or shuffle the shards. If the order of the
    batches does not matter, pass in_order=False to the DataLoader (PyTorch 2.6 or later).

When it is wrong
    When one worker shares its core with another program and is slow only for that reason.
"""

from __future__ import annotations

from statistics import median

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.data_loading.loaders import LoaderUse
from perfwrap.measures.data_loading.worker_need import Step, measured_step, saved
from perfwrap.measures.data_loading.worker_states import WorkerState, find_worker_states
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts, torch_version
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, Option, locate, named

NEEDS = ("data", "steady_steps")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    min_factor: float = 2.0
    """The slowest worker over the median of the others."""
    min_batches: int = 5
    """Batches per worker that are enough to judge it."""
    min_busy_share: float = 0.8
    """The slowest worker delays the others only if it is busy itself."""
    min_gain_share: float = 0.5
    """Minimum part of the gain: evenly distributed work still varies from batch to batch."""


FIRST_UNORDERED = (2, 6)
"""The torch version that introduced in_order=False."""


class Pace(Struct, frozen=True):
    """The slowest worker compared with the others."""

    slowest: WorkerState
    others_ns: float

    @property
    def times(self) -> float:
        """How many times as long it takes as the others."""
        return self.slowest.median_fetch_ns / self.others_ns if self.others_ns else 1.0


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Look for workers that delay the others."""
    loaders, answer = making.in_workers(evidence, trainer)
    if answer is not None:
        return answer
    paces = [(loader, _pace(evidence.get(find_worker_states, trainer, loader), limits)) for loader in loaders]
    several = [(loader, pace) for loader, pace in paces if pace is not None]
    if not several:
        return Clear("Fewer than two workers made enough batches to compare.")
    found = [
        _finding(evidence, trainer, loader, pace, step, limits)
        for loader, pace in several
        if pace.times >= limits.min_factor
        and pace.slowest.busy_share >= limits.min_busy_share
        and (step := measured_step(evidence, trainer, loader)) is not None
    ]
    times = max(pace.times for _, pace in several)
    return found or Clear(f"The slowest worker takes {units.times(times)} as long as the others.")


def _pace(states: tuple[WorkerState, ...], limits: Limits) -> Pace | None:
    """Return the slowest worker compared with the others, None if there are not two to compare."""
    known = [state for state in states if state.batches >= limits.min_batches]
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda state: state.median_fetch_ns)
    others = [state.median_fetch_ns for state in known if state is not slowest]
    return Pace(slowest, float(median(others)))


def _finding(
    evidence: Evidence, trainer: Trainer, loader: LoaderUse, pace: Pace, step: Step, limits: Limits
) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    number = evidence.get(find_facts, pace.slowest.process).get("worker_id")
    who = f"Worker {number}" if number is not None else "One worker"
    best, worst = saved(step.evened(), step.workers)
    words = [
        f"{who} takes {units.duration(pace.slowest.median_fetch_ns)} per batch (median), the others "
        f"{units.duration(pace.others_ns)}.",
        f"It makes batches {units.share(pace.slowest.busy_share)} of its time.",
    ]
    if loader.ready is not None and loader.ready.overtaken:
        words.append(
            f"In {units.counted(loader.ready.overtaken, 'wait')}, later batches were ready before the one that was "
            "next in order."
        )
    return Finding(
        title=f"{SHARE} of the training loop waits for {where}: one of its workers takes "
        f"{units.times(pace.times)} as long as the others.",
        share=loader.late_share,
        evidence=tuple(words),
        options=(
            Option(
                "Distribute the work evenly: split every shard among the workers, or shuffle the shards.",
                (best, min(worst, 1.0 - limits.min_gain_share * (1.0 - best))),
                f"{who} takes {units.times(pace.times)} as long as the others",
                "cached-batch",
            ),
            *_unordered(evidence, trainer, where, best),
        ),
        verdict="data-bound",
        location=locate(loader.created),
        confidence="inferred",
        claims=making.waits(loader),
    )


def _unordered(evidence: Evidence, trainer: Trainer, where: str, best: float) -> tuple[Option, ...]:
    """Return the option to take batches as they come, if this torch has it; the slow worker may still be last."""
    if torch_version(evidence.get(find_facts, trainer.process)) < FIRST_UNORDERED:
        return ()
    return (Option(f"Pass in_order=False to {where}, if the order of batches does not matter.", (best, 1.0)),)

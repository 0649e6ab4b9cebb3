"""One worker takes much longer for its batches than the others, and all wait for it.

What it finds
    A DataLoader that the training waits for during 2 % of the loop or more, whose slowest worker takes at least twice
    as long for a batch as the median of the others.

Why it costs
    Batches are handed over in order: what the others have ready waits for the slowest one's turn, so the loop goes at
    the pace of that worker, and the others idle.

How the saving is worked out
    Measured in each worker: the median time of a batch. At best a step takes the rest of it, or the mean time of a
    batch over the number of workers, whichever is longer. At worst half of that gain is left.

How to fix
    Give each worker its part of every shard instead of whole shards, or shuffle the shards. Where the order of the
    batches does not matter, pass in_order=False to the DataLoader (PyTorch 2.6 and later).

When it is wrong
    When one worker shares its core with another program and is slow for that reason only.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loaders import LoaderUse
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_need import Step, measured_step
from perfwrap.measures.worker_states import WorkerState
from perfwrap.rules import making
from perfwrap.rules.model import SHARE, Answer, Clear, Finding, locate, named

NEEDS = ("data", "steady_steps")

TIMES = 2.0
"""The slowest worker over the median of the others; the catalogue's figure."""

LEAST_BATCHES = 5
"""Batches of each worker that say something about it."""

BUSY_SHARE = 0.8
"""The slowest worker holds the others up only when it is busy itself."""

KEPT = 0.5
"""The least part of the gain that is promised: work that is dealt out evenly still differs from batch to batch."""


@dataclass(frozen=True)
class Pace:
    """The slowest worker beside the others."""

    slowest: WorkerState
    others_ns: float
    mean_ns: float

    @property
    def times(self) -> float:
        """How many times as long it takes."""
        return self.slowest.median_fetch_ns / self.others_ns if self.others_ns else 1.0


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look for workers that hold the others up."""
    loaders, answer = making.in_workers(evidence, trainer)
    if answer is not None:
        return answer
    paces = [(loader, _pace(evidence.worker_states(trainer, loader))) for loader in loaders]
    several = [(loader, pace) for loader, pace in paces if pace is not None]
    if not several:
        return Clear("There are not two workers with enough batches each.")
    found = [
        _finding(evidence, loader, pace, step)
        for loader, pace in several
        if pace.times >= TIMES
        and pace.slowest.busy_share >= BUSY_SHARE
        and (step := measured_step(evidence, trainer, loader)) is not None
    ]
    times = max(pace.times for _, pace in several)
    return found or Clear(f"The slowest worker takes {units.times(times)} the time of the others.")


def _pace(states: tuple[WorkerState, ...]) -> Pace | None:
    """Return the slowest worker beside the others, None where there are not two to compare."""
    known = [state for state in states if state.batches >= LEAST_BATCHES]
    if len(known) < 2:
        return None
    slowest = max(known, key=lambda state: state.median_fetch_ns)
    others = [state.median_fetch_ns for state in known if state is not slowest]
    every = [*others, slowest.median_fetch_ns]
    return Pace(slowest, float(median(others)), sum(every) / len(every))


def _finding(evidence: Evidence, loader: LoaderUse, pace: Pace, step: Step) -> Finding:
    """Return the finding about one loader."""
    where = named("the DataLoader", loader.created)
    number = evidence.facts(pace.slowest.process).get("worker_id")
    who = f"Worker {number}" if number is not None else "One worker"
    per_step = step.fetch_ns / loader.fetch_ns if loader.fetch_ns else 1.0
    best = min(1.0, max(step.rest_ns, pace.mean_ns * per_step / max(1, step.workers)) / step.now_ns)
    words = [
        f"{who} takes {units.duration(pace.slowest.median_fetch_ns)} for a batch as a median, the others "
        f"{units.duration(pace.others_ns)}.",
        f"It makes batches {units.share(pace.slowest.busy_share)} of its time.",
    ]
    if loader.ready is not None and loader.ready.overtaken:
        words.append(
            f"In {units.counted(loader.ready.overtaken, 'wait')} later batches were ready before the one whose turn "
            "it was."
        )
    return Finding(
        title=f"{SHARE} of the training loop is spent waiting for {where}: one of its workers takes "
        f"{units.times(pace.times)} as long as the others.",
        share=loader.late_share,
        saving=(best, 1.0 - KEPT * (1.0 - best)),
        evidence=tuple(words),
        advice="Deal the work out evenly: give each worker its part of every shard, or shuffle the shards. Where the "
        "order of batches does not matter, pass in_order=False (PyTorch 2.6 and later).",
        verdict="data-bound",
        location=locate(loader.created),
        experiment="cached-batch",
        confidence="inferred",
        claims=making.waits(loader),
    )

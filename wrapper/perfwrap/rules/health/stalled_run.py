"""The training hung: no step ended for a long time, and the run was idle.

What it finds
    Times without a step of more than five times the 99th percentile of the steps so far, and of more than --stall-after
    (60 s), in which no recorded process made a batch, ran a forward pass or saved, and no process of the run used the
    CPU or moved data. The finding names the missing rank, the call in which the others wait for it, and the DataLoader
    worker that hangs in a batch. Stalls that ended by themselves are also reported.

Why it costs
    All CPUs and GPUs of the job wait, often until somebody looks the next morning.

How the gain is estimated
    The share is that of the stalls that ended by themselves, of the whole run. For a stall that did not end no share is
    claimed: it cost the run.

How to fix
    Check the line at which the missing rank or worker is, and the stacks in the run folder. Set a timeout for
    collectives (init_process_group(timeout=...)) and for the DataLoader (timeout=...), so that a hang becomes an error.
    Make sure that all ranks run the same number of steps and the same calls in the same order.

When it is wrong
    When the program waits on purpose, without a DataLoader that has ended: for a person, a file or another job.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.health.stalls import Stall, find_stalls, is_watched
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Option, Scope, locate
from perfwrap.timeline.coverage import notes

NEEDS = ("trainer", "recorder")


class Limits(Struct, frozen=True):
    """This rule has no thresholds."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check what the monitors recorded; a stall belongs to the whole job."""
    stalls = [stall for stall in find_stalls(evidence.timeline) if not _was_the_end(evidence, stall)]
    if stalls:
        is_main = trainer == evidence.get(find_main_trainer)
        return [_finding(evidence, stalls)] if is_main else Clear("Reported for the first rank.")
    if not is_watched(evidence.timeline):
        why = "; ".join(notes(evidence.timeline, "stalls")[:2])
        return NotChecked(f"Stalls were not monitored: {why or 'run without --no-monitors'}.")
    return Clear("No long time without a step.")


def _finding(evidence: Evidence, stalls: list[Stall]) -> Finding:
    """Return the finding about all stalls of a run: the last one if it ended the run, otherwise the longest."""
    last = stalls[-1]
    worst = last if not last.went_on else max(stalls, key=lambda stall: stall.lasted_ns or 0)
    lost = sum(stall.lasted_ns or 0 for stall in stalls if stall.went_on)
    others = len(stalls) - 1
    return Finding(
        title=_title(worst),
        share=min(1.0, lost / max(1, _length(evidence))),
        evidence=(
            f"At that moment, after {units.counted(worst.steps, 'step')}: {worst.sentence}.",
            f"The stacks of all processes are in {worst.file}.",
            *((f"The run had {units.counted(others, 'more such stall')}.",) if others else ()),
        ),
        options=(_option(worst),),
        location=locate(worst.where),
        scope=Scope.RUN,
        of_job=True,
        health=True,
        min_severity="minor" if worst.went_on else "critical",
    )


def _title(stall: Stall) -> str:
    """Return what happened in one sentence."""
    who = f"{' and '.join(stall.missing)} kept the others waiting" if stall.missing else "nothing moved"
    if stall.went_on:
        return f"The training hung for {units.duration(stall.lasted_ns or stall.silent_ns)} and continued: {who}."
    return f"The training hung after {units.counted(stall.steps, 'step')} and did not continue: {who}."


def _option(stall: Stall) -> Option:
    """Return what to do about it."""
    look = f"Check the stacks in {stall.file}."
    if stall.where is not None:
        look = f"Check {locate(stall.where)} and the stacks in {stall.file}."
    if stall.missing:
        more = (
            "Make sure that all ranks run the same calls in the same order and the same number of steps; "
            "init_process_group(timeout=...) turns such a hang into an error."
        )
    elif "DataLoader" in stall.sentence:
        more = "DataLoader(timeout=...) turns a missing batch into an error."
    else:
        more = "`perfwrap run --kill-on-stall` ends a run that hangs, after it has saved the stacks."
    return Option(look, (1.0, 1.0), details=more)


def _was_the_end(evidence: Evidence, stall: Stall) -> bool:
    """Return whether the program only waited after its last step, and then ended without an error."""
    how = evidence.timeline.run.get("exit")
    return not stall.went_on and isinstance(how, Mapping) and how.get("code") == 0


def _length(evidence: Evidence) -> int:
    """Return the recorded length of the run."""
    coverage = evidence.timeline.coverage
    if coverage.is_empty():
        return 0
    return int(coverage["end"].max()) - int(coverage["start"].min())  # type: ignore[arg-type]

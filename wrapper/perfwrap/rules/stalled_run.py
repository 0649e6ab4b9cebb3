"""The training hung: no step ended for a long time, and nothing of the run was at work.

What it finds
    Silences of more than five times the 99th percentile of the steps so far, and of more than --stall-after (60 s), in
    which no recorded process drew a batch, ran a forward pass or saved, and no process of the run used the processor
    or moved data. It names the rank that is missing, the call in which the others wait for it, and the DataLoader
    worker that hangs in a batch. It tells also of those that ended by themselves.

Why it costs
    All processors and GPUs of the job wait, often until somebody looks the next morning.

How the saving is worked out
    The share is that of the stalls which ended by themselves, of the whole run. Of one that did not no share is
    claimed: it cost the run.

How to fix
    Look at the line where the missing rank or worker stands, and at the stacks in the run folder. Give collectives a
    timeout (init_process_group(timeout=...)) and the DataLoader one (timeout=...), so that a hang becomes an error. See
    that all ranks make the same number of steps and the same calls in the same order.

When it is wrong
    When the program waits on purpose, without a DataLoader that has come to its end: for a person, for a file, for
    another job.
"""

from __future__ import annotations

from collections.abc import Mapping

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.stalls import Stall, find_stalls, is_watched
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, locate
from perfwrap.timeline.coverage import notes

NEEDS = ("trainer", "recorder")


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look at what the monitors noticed; a stall is the whole job's."""
    stalls = [stall for stall in find_stalls(evidence.timeline) if not _was_the_end(evidence, stall)]
    if stalls:
        return [_finding(evidence, stalls)] if trainer == evidence.main else Clear("See the first rank.")
    if not is_watched(evidence.timeline):
        why = "; ".join(notes(evidence.timeline, "stalls")[:2])
        return NotChecked(f"Nobody looked for stalls: {why or '`perfwrap run` without --no-monitors does'}.")
    return Clear("Steps ended all the time.")


def _finding(evidence: Evidence, stalls: list[Stall]) -> Finding:
    """Return the finding about all stalls of a run: the last one where that ended it, else the longest."""
    last = stalls[-1]
    worst = last if not last.went_on else max(stalls, key=lambda stall: stall.lasted_ns or 0)
    lost = sum(stall.lasted_ns or 0 for stall in stalls if stall.went_on)
    others = len(stalls) - 1
    return Finding(
        title=_title(worst),
        share=min(1.0, lost / max(1, _length(evidence))),
        saving=(1.0, 1.0),
        evidence=(
            f"At that moment, after {units.counted(worst.steps, 'step')}: {worst.sentence}.",
            f"The stacks of all processes are in {worst.file}.",
            *((f"The run had {units.counted(others, 'such stall')} more.",) if others else ()),
        ),
        advice=_advice(worst),
        location=locate(worst.where),
        of_run=True,
        of_job=True,
        health=True,
        at_least="minor" if worst.went_on else "critical",
    )


def _title(stall: Stall) -> str:
    """Return what happened in one sentence."""
    who = f"{' and '.join(stall.missing)} kept the others waiting" if stall.missing else "nothing moved"
    if stall.went_on:
        return (
            f"The training hung for {units.duration(stall.lasted_ns or stall.silent_ns)} and went on: {who}."
        )
    return f"The training hung after {units.counted(stall.steps, 'step')} and did not go on: {who}."


def _advice(stall: Stall) -> str:
    """Return what to do about it."""
    look = f"Look at {locate(stall.where)} and at the stacks in {stall.file}."
    if stall.where is None:
        look = f"Look at the stacks in {stall.file}."
    if stall.missing:
        return (
            f"{look} See that all ranks make the same calls in the same order and the same number of steps; "
            "init_process_group(timeout=...) turns such a hang into an error."
        )
    if "DataLoader" in stall.sentence:
        return f"{look} DataLoader(timeout=...) turns a batch that never comes into an error."
    return f"{look} `perfwrap run --kill-on-stall` ends a run that hangs, after its stacks were written."


def _was_the_end(evidence: Evidence, stall: Stall) -> bool:
    """Say whether the program only waited after its last step, and then ended well."""
    how = evidence.timeline.run.get("exit")
    return not stall.went_on and isinstance(how, Mapping) and how.get("code") == 0


def _length(evidence: Evidence) -> int:
    """Return how long the run took, as far as it was recorded."""
    coverage = evidence.timeline.coverage
    if coverage.is_empty():
        return 0
    return int(coverage["end"].max()) - int(coverage["start"].min())  # type: ignore[arg-type]

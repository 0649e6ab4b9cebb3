"""Ranks died and were started anew.

What it finds
    A job whose launcher started the ranks again after one of them had ended (torchrun --max-restarts, elastic jobs).

Why it costs
    All ranks begin anew: processes, imports, the first batch, and every step since the last checkpoint.

How the saving is worked out
    Measured: the time from the last step before to the first step after, as a share of the run. Steps that were made
    twice are not known and come on top.

How to fix
    Look in the launcher's output for the first error, and save checkpoints often enough that little is made twice.

When it is wrong
    When the job is meant to lose and gain ranks while it runs.
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.restarts import Restart
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding

NEEDS = ("trainer",)


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Look whether ranks were started more than once; it is told once, of the main one."""
    restarts = evidence.restarts
    if not restarts:
        return Clear("No rank was started anew.")
    if trainer != evidence.main:
        return Clear(f"It is told of {evidence.main.name if evidence.main else 'the main one'}.")
    gap_ns = sum(restart.gap_ns for restart in restarts)
    share = _share_of_run(evidence, gap_ns)
    often = "once" if len(restarts) == 1 else units.counted(len(restarts), "time")
    first = restarts[0].first
    who = f"{first.name} ended" if first is not None and len(restarts) == 1 else "a rank had ended"
    return [
        Finding(
            title=f"The ranks were started anew {often} after {who}; no step was made for "
            f"{units.duration(gap_ns)} meanwhile.",
            share=share,
            saving=(1.0, 1.0),
            evidence=(
                *(_told(restart) for restart in restarts),
                f"The figures of steps and ranks are those of {evidence.main.name} and the ranks at work with it; "
                "the account holds all starts.",
            ),
            advice="Look for the first error in the launcher's output, and save checkpoints often enough that few "
            "steps are made twice.",
            of_run=True,
            of_job=True,
            health=True,
            ranks=() if first is None or first.rank is None else (first.rank,),
        )
    ]


def _share_of_run(evidence: Evidence, gap_ns: int) -> float:
    """Return the time without steps as a share of the run; 0 where the run's length is not known."""
    start, end = evidence.timeline.run.get("start"), evidence.timeline.run.get("end")
    if not isinstance(start, dict) or not isinstance(end, dict):
        return 0.0
    return min(1.0, gap_ns / max(1, int(end["monotonic_ns"] - start["monotonic_ns"])))


def _told(restart: Restart) -> str:
    """Return one restart in a sentence."""
    who = (
        f"the process of {restart.first.name} was the first to end by itself"
        if restart.first is not None
        else "which process failed was not recorded, since none ended by itself"
    )
    return (
        f"Start {restart.start} of {units.counted(restart.ranks, 'rank')} came after "
        f"{units.counted(restart.steps, 'step')} and {units.duration(restart.gap_ns)} without any: {who}."
    )

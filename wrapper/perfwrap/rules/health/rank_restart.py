"""Ranks died and were restarted.

What it finds
    A job whose launcher restarted the ranks after one of them had ended (torchrun --max-restarts, elastic jobs): it
    says so, or a part of the ranks was killed before all started again.

Why it costs
    All ranks start again: processes, imports, the first batch, and every step since the last checkpoint.

How the gain is estimated
    Measured: the time from the last step before to the first step after, as a share of the run. Repeated steps are
    unknown and add to this.

How to fix
    Look for the first error in the launcher's output, and save checkpoints often enough that few steps are repeated.

When it is wrong
    When the job is meant to lose and gain ranks while it runs. Ranks that all ended by themselves and started again
    (one ``mp.spawn`` for each fold) are not reported.
"""

from __future__ import annotations

from msgspec import Struct

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.ranks.restarts import Restart, find_restarts
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import Answer, Clear, Finding, Option, Scope

NEEDS = ("trainer",)


class Limits(Struct, frozen=True):
    """This rule has no thresholds."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Check whether ranks were restarted; reported once, for the main training thread."""
    restarts = [restart for restart in evidence.get(find_restarts) if restart.after_failure]
    if not restarts:
        return Clear("No rank was restarted.")
    main = evidence.get(find_main_trainer)
    if trainer != main:
        return Clear(f"Reported for {main.name if main else 'the main one'}.")
    gap_ns = sum(restart.gap_ns for restart in restarts)
    share = _share_of_run(evidence, gap_ns)
    often = "once" if len(restarts) == 1 else units.counted(len(restarts), "time")
    first = restarts[0].first
    who = f"{first.name} ended" if first is not None and len(restarts) == 1 else "a rank had ended"
    return [
        Finding(
            title=f"The ranks were restarted {often} after {who}; no step ran for "
            f"{units.duration(gap_ns)} meanwhile.",
            share=share,
            evidence=(
                *(_sentence(restart) for restart in restarts),
                f"The figures of steps and ranks are those of {trainer.name} and the ranks that ran with it; "
                "the account includes all starts.",
            ),
            options=(
                Option(
                    "Look for the first error in the launcher's output, and save checkpoints often enough that few "
                    "steps are repeated.",
                    (1.0, 1.0),
                ),
            ),
            scope=Scope.RUN,
            of_job=True,
            health=True,
            ranks=() if first is None or first.rank is None else (first.rank,),
        )
    ]


def _share_of_run(evidence: Evidence, gap_ns: int) -> float:
    """Return the time without steps as a share of the run; 0 if the length of the run is unknown."""
    start, end = evidence.timeline.run.get("start"), evidence.timeline.run.get("end")
    if not isinstance(start, dict) or not isinstance(end, dict):
        return 0.0
    return min(1.0, gap_ns / max(1, int(end["monotonic_ns"] - start["monotonic_ns"])))


def _sentence(restart: Restart) -> str:
    """Return one restart in a sentence."""
    who = (
        f"the process of {restart.first.name} ended first"
        if restart.first is not None
        else "the failed process was not recorded, because none ended by itself"
    )
    return (
        f"Start {restart.start} with {units.counted(restart.ranks, 'rank')} came after "
        f"{units.counted(restart.steps, 'step')} and {units.duration(restart.gap_ns)} without a step: {who}."
    )

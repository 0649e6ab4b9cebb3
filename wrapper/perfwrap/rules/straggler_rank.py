"""One rank is slower than the others, and all of them wait for it.

What it finds
    A rank whose own work (without the backward pass, collectives and reads, in which ranks wait for each other) takes
    2 % of a step or more longer than that of every other rank, beyond what chance makes of it, and that is the slowest
    in a quarter of the steps.

Why it costs
    Ranks exchange gradients in each step: the slowest sets the pace of all.

How the saving is worked out
    Measured: the mean time of that rank's own work beyond the next slowest rank's. At best all of it goes; at
    worst half, as part of it may have been hidden.

How to fix
    Mend what the named part of that rank does more than the others: slow data (its shard, its disk, its workers),
    Python that only this rank runs (logging, statistics, checkpoints), longer sequences or more samples.

When it is wrong
    When ranks do not depend on each other in each step (asynchronous training, pipelines).
"""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loop import busiest_line
from perfwrap.measures.stragglers import Straggler
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import QUIET_SHARE, SHARE, Answer, Clear, Finding, NotChecked, locate, place

NEEDS = ("trainer", "steady_steps", "recorder")

PERSISTENT = 0.25
"""Share of the steps in which a rank must be the slowest; the catalogue's figure."""

EXPLAINED = 0.8
"""A part is named as the cause when its excess covers this much of the rank's; the catalogue's figure."""

BEYOND_CHANCE = 3.0
"""Standard errors of the mean that the excess must be: on a busy machine ranks differ from step to step."""

WORDS = {
    "data": "waiting for batches",
    "transfer": "copying tensors",
    "forward": "the forward pass",
    "optimizer": "the optimizer",
    "checkpoint": "saving or loading",
    "compile": "compiling",
    "gc": "garbage collection",
    "python": "its own Python",
}

VERDICTS = {
    "data": "data-bound",
    "python": "python-bound",
    "checkpoint": "checkpoint/validation-bound",
    "validation": "checkpoint/validation-bound",
}
"""What holds the job back where the straggler has more of that; other rules then say where the same time goes."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Compare what the ranks do themselves."""
    if sum(other.rank is not None for other in evidence.trainers) < 2:
        return Clear("There is only one rank.")
    found = evidence.straggler
    if found is None:
        return NotChecked("Too few steps stand in detail on every rank for the ranks to be compared.")
    share = found.excess_ns / found.step_ns if found.step_ns else 0.0
    is_chance = found.excess_ns < BEYOND_CHANCE * found.error_ns
    if share < QUIET_SHARE or found.slowest_share < PERSISTENT or is_chance:
        return Clear(
            f"The slowest rank's own work takes {units.share(share)} of a step more than the next one's; it was the "
            f"slowest in {units.share(found.slowest_share)} of the steps."
        )
    if found.trainer != trainer:
        return Clear(f"The others wait for {found.trainer.name}.")
    return [_finding(evidence, found, share)]


def _finding(evidence: Evidence, found: Straggler, share: float) -> Finding:
    """Return the finding about the straggler."""
    whole = sum(max(0.0, more) for more in found.parts.values())
    cause, excess = next(iter(found.parts.items()))
    is_named = whole > 0 and excess >= EXPLAINED * whole
    line = _line(evidence, found, cause) if is_named else None
    shown = ", ".join(
        f"{WORDS.get(part, part)} {units.duration(more)}"
        for part, more in found.parts.items()
        if more > 0.05 * whole
    )
    why = f", because of {WORDS.get(cause, cause)}" if is_named else ""
    where = f" at {place(line, '')}" if line else ""
    return Finding(
        title=f"All ranks wait for {found.trainer.name} {SHARE} of the time{why}{where}.",
        share=share,
        saving=(1.0 - share, 1.0 - share / 2),
        evidence=(
            f"It was the slowest in {units.share(found.slowest_share)} of "
            f"{units.counted(found.steps, 'step')} that all ranks have in detail; its own work takes "
            f"{units.duration(found.excess_ns)} of {units.duration(found.step_ns)} longer than the next rank's.",
            f"Per step it has more than the others of: {shown}.",
        ),
        advice=_advice(cause, is_named, found.trainer.name, where),
        verdict=VERDICTS.get(cause, "communication-bound") if is_named else "communication-bound",
        location=locate(line),
        of_job=True,
    )


def _line(evidence: Evidence, found: Straggler, part: str) -> Line | None:
    """Return the line of the straggler at which the part that it has more of is spent."""
    if part == "python":
        gaps = [gap for gap in evidence.python_gaps(found.trainer) if gap.after is not None]
        return gaps[0].after if gaps else None
    return busiest_line(evidence.account(found.trainer), part)


def _advice(cause: str, is_named: bool, name: str, where: str) -> str:
    """Return what to change."""
    if not is_named:
        return f"Look at what {name} does otherwise than the others: its host, its shard, what only it logs or saves."
    if cause == "data":
        return f"Mend how {name} gets its data{where}: its shard, its disk, its number of workers."
    if cause == "forward":
        return (
            f"Give {name} as much work as the others: as many samples, and sequences as long, in each step."
        )
    if cause in ("python", "checkpoint"):
        return (
            f"Do less of it{where} in each step of {name}, or in the background; the others wait meanwhile."
        )
    return f"Find what makes {WORDS.get(cause, cause)} slower on {name}{where} than on the others."

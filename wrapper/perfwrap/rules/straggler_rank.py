"""One rank is slower than the others, and all of them wait for it.

What it finds
    A rank whose own work (without the backward pass, collectives and reads, in which ranks wait for each other) takes
    2 % of a step or more longer than that of every other rank, beyond what chance makes of it, and that is the slowest
    in a quarter of the steps, or for which most of the waiting is where ranks meet. The cause is named where one part
    explains it: data, Python, garbage collection, checkpoints and so on; or that the rank has fewer cores than the
    others, shares them, or has a GPU whose clocks are lowered.

Why it costs
    Ranks exchange gradients in each step: the slowest sets the pace of all.

How the saving is worked out
    Measured: the mean time of that rank's own work beyond the next slowest rank's. At best all of it goes; at
    worst half, as part of it may have been hidden. The time in which the others wait for it, as far as that is known,
    counts for this finding and for no other: measured in the program's own collectives, inferred in DDP's backward
    passes (docs/ranks.md).

How to fix
    Mend what the named part of that rank does more than the others: slow data (its shard, its disk, its workers),
    Python that only this rank runs (logging, statistics, checkpoints), longer sequences or more samples, cores that
    it shares.

When it is wrong
    When ranks do not depend on each other in each step (asynchronous training, pipelines). What makes only the backward
    pass of one rank slow does not show: all ranks leave it together.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import polars as pl

from perfwrap import units
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.lines import Line
from perfwrap.measures.loop import busiest_line
from perfwrap.measures.rank_differences import RankDifference
from perfwrap.measures.stragglers import Straggler
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.what_if import without
from perfwrap.rules.model import (
    MINOR_SHARE,
    QUIET_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    locate,
    place,
)

NEEDS = ("trainer", "steady_steps", "recorder")

PERSISTENT = 0.25
"""Share of the steps in which a rank must be the slowest; the catalogue's figure."""

EXPLAINED = 0.8
"""A part is named as the cause when its excess covers this much of the rank's; the catalogue's figure."""

BEYOND_CHANCE = 3.0
"""Standard errors of the mean that the excess must be: on a busy machine ranks differ from step to step."""

GIVEN = 0.5
"""A rank's lack of cores is the cause when it lasts for this much of what the rank is late by."""

OF_PROCESSORS = ("data", "forward", "optimizer", "python", "transfer")
"""Parts that take longer where the processors are short; another one is a cause of its own."""

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
    "gc": "python-bound",
    "checkpoint": "checkpoint/validation-bound",
    "validation": "checkpoint/validation-bound",
}
"""What holds the job back where the straggler has more of that; other rules then say where the same time goes."""


def check(evidence: Evidence, trainer: Trainer) -> Answer:
    """Compare what the ranks do themselves; told of the ranks that wait, where that is known, else of the late one."""
    if len(evidence.together) < 2:
        return Clear("There is only one rank.")
    if trainer not in evidence.together:
        return Clear("The ranks of another start were compared, which made more steps.")
    found = evidence.straggler
    if found is None:
        return NotChecked("Too few steps stand in detail on every rank for the ranks to be compared.")
    share = found.excess_ns / found.step_ns if found.step_ns else 0.0
    if share < QUIET_SHARE or not _persistent(evidence, found) or _is_chance(found):
        return Clear(_why_clear(evidence, found, share))
    late = evidence.skew.of(found.trainer) if evidence.skew else None
    is_known = late is not None and late.caused_ns > 0
    if (trainer == found.trainer) == is_known:
        return Clear(f"The others wait for {found.trainer.name}.")
    return [_finding(evidence, found, share, is_known)]


def _persistent(evidence: Evidence, found: Straggler) -> bool:
    """Say whether it is the same rank again and again; rarely but for long is enough where waits are known."""
    skew = evidence.skew
    is_waited_for = skew is not None and skew.latest.trainer == found.trainer and skew.always_the_same
    return found.slowest_share >= PERSISTENT or is_waited_for


def _is_chance(found: Straggler) -> bool:
    """Say whether the ranks may differ by chance alone, both by the mean and by who is the slowest how often.

    A machine that stood still in some steps makes every mean uncertain, but not who was slower in most steps; that one
    rank is slower by little in most steps may be its core.
    """
    by_mean = found.excess_ns < BEYOND_CHANCE * found.error_ns
    half = 0.5 + BEYOND_CHANCE * (0.25 / found.steps) ** 0.5
    by_count = found.slowest_share < half or found.typical_ns < MINOR_SHARE * found.step_ns
    return by_mean and by_count


def _why_clear(evidence: Evidence, found: Straggler, share: float) -> str:
    """Return what was seen instead of a straggler."""
    skew = evidence.skew
    seen = (
        f"The slowest rank's own work takes {units.share(share)} of a step more than the next one's; it was the "
        f"slowest in {units.share(found.slowest_share)} of the steps."
    )
    if skew is None or skew.waiting_share < QUIET_SHARE:
        return seen
    return (
        f"{seen} Ranks wait for each other {units.share(skew.waiting_share)} of the time: "
        f"{units.share(skew.latest_share)} of it for {skew.latest.trainer.name}, the rest for others in turn."
    )


def _finding(evidence: Evidence, found: Straggler, share: float, is_known: bool) -> Finding:
    """Return the finding about the straggler."""
    whole = sum(max(0.0, more) for more in found.parts.values())
    cause, excess = next(iter(found.parts.items()))
    is_named = whole > 0 and excess >= EXPLAINED * whole
    given = _given(evidence, found, share, cause if is_named else "")
    line = _line(evidence, found, cause) if is_named and given is None else None
    where = f" at {place(line, '')}" if line else ""
    if given is not None:
        why = f", because it {given.text}"
        if given.kind == "processors":
            why += f" that others had {units.share(given.share)} of the time"
    else:
        why = f", because of {WORDS.get(cause, cause)}{where}" if is_named else ""
    verdict = VERDICTS.get(cause, "communication-bound") if is_named else "communication-bound"
    return Finding(
        title=f"All ranks wait for {found.trainer.name} {SHARE} of the time{why}.",
        share=share,
        saving=without(share),
        evidence=tuple(_evidence(evidence, found, whole)),
        advice=_advice_given(given, found.trainer.name)
        if given
        else _advice(cause, is_named, found.trainer.name, where),
        verdict="throttled" if given else verdict,
        location=locate(line),
        confidence="measured"
        if given is None and is_known and evidence.skew and evidence.skew.measured
        else "inferred",
        claims=pl.col("waits_for") == found.trainer.rank if is_known else None,
        of_job=True,
        ranks=() if found.trainer.rank is None else (found.trainer.rank,),
    )


def _given(evidence: Evidence, found: Straggler, share: float, part: str) -> RankDifference | None:
    """Return what the rank is given that explains its slowness: half of it, where no other part explains it."""
    if part and part not in OF_PROCESSORS:
        return None
    own = [each for each in evidence.rank_differences if each.trainer == found.trainer]
    slow = [each for each in own if each.kind == "gpu clocks" or each.share >= share * GIVEN]
    return slow[0] if slow else None


def _evidence(evidence: Evidence, found: Straggler, whole: float) -> Iterator[str]:
    """Return what was seen: how slow, how often, in which parts, and what the others waited for it."""
    yield (
        f"It was the slowest in {units.share(found.slowest_share)} of "
        f"{units.counted(found.steps, 'step')} that all ranks have in detail; its own work takes "
        f"{units.duration(found.excess_ns)} of {units.duration(found.step_ns)} longer than the next rank's."
    )
    shown = ", ".join(
        f"{WORDS.get(part, part)} {units.duration(more)}"
        for part, more in found.parts.items()
        if more > 0.05 * whole
    )
    yield f"Per step it has more than the others of: {shown}."
    late = evidence.skew.of(found.trainer) if evidence.skew else None
    if evidence.skew is None or late is None or not late.caused_ns:
        yield "Where the others wait for it was not seen."
        return
    whole_wait = sum(rank.caused_ns for rank in evidence.skew.ranks)
    how = "measured in the collectives" if evidence.skew.measured else "inferred from their backward passes"
    again = "always the same rank" if evidence.skew.always_the_same else "others come last, too"
    yield (
        f"It came last in {units.share(late.last / late.meetings)} of "
        f"{units.counted(late.meetings, 'meeting')}; the others waited {units.duration(late.caused_ns)} per step for "
        f"it ({how}), {units.share(late.caused_ns / whole_wait)} of all waiting: "
        f"{again}."
    )


def _line(evidence: Evidence, found: Straggler, part: str) -> Line | None:
    """Return the line of the straggler at which the part that it has more of is spent."""
    if part == "python":
        return _python_line(evidence, found.trainer)
    return busiest_line(evidence.account(found.trainer), part)


def _python_line(evidence: Evidence, late: Trainer) -> Line | None:
    """Return the line after which the late rank runs most Python that the others do not run."""
    others = [trainer for trainer in evidence.together if trainer != late]
    theirs = [
        {(gap.after, gap.until_line): gap.per_step_ns for gap in evidence.python_gaps(other)}
        for other in others
    ]
    more = {
        gap.after: gap.per_step_ns - median(gaps.get((gap.after, gap.until_line), 0.0) for gaps in theirs)
        for gap in reversed(evidence.python_gaps(late))
        if gap.after is not None
    }
    return max(more, key=lambda line: more[line], default=None)


def _advice_given(given: RankDifference, name: str) -> str:
    """Return what to change where a rank is given less than the others."""
    if given.kind == "gpu clocks":
        return f"Look at the cooling and the power limit of {name}'s GPU, or leave it out of the job."
    return (
        f"Give {name} cores of its own, as many as the others have (taskset, cpuset, --cpus-per-task, numactl), or end "
        "what else runs on them."
    )


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

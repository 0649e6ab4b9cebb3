"""One rank is slower than the others, and all of them wait for it.

What it finds
    A rank whose own work (without the backward pass, collectives and reads, in which ranks wait for each other) takes
    at least 2 % of a step longer than that of every other rank, more than by chance, and that is the slowest in a
    quarter of the steps, or causes most of the waits at synchronization points. The cause is named if one part explains
    it: data, Python, garbage collection, checkpoints and so on; or if the rank has fewer cores than the others, shares
    them, or has a GPU with reduced clocks.

Why it costs
    Ranks exchange gradients in each step: the slowest sets the pace of all.

How the gain is estimated
    Measured: the mean extra time of that rank's own work over the next slowest rank's. At best all of it disappears, at
    worst half, because part of it may have been hidden. The time in which the others wait for it, if known, is claimed
    by this finding only: measured in the program's own collectives, estimated in DDP's backward passes (docs/ranks.md).

How to fix
    Fix the part in which this rank takes longer than the others: slow data (its shard, its disk, its workers), Python
    that only this rank runs (logging, statistics, checkpoints), longer sequences or more samples, cores that it shares.

When it is wrong
    When ranks do not depend on each other in each step (asynchronous training, pipelines). A slow backward pass on one
    rank is not detected, because all ranks leave it together.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import polars as pl
from msgspec import Struct

from perfwrap import units
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.loop_figures import busiest_line
from perfwrap.measures.account.what_if import without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.python_gaps import find_python_gaps
from perfwrap.measures.ranks.concurrent_loops import find_ranks_together
from perfwrap.measures.ranks.rank_differences import RankDifference, find_rank_differences
from perfwrap.measures.ranks.rank_skew import find_skew
from perfwrap.measures.ranks.stragglers import Straggler, find_straggler
from perfwrap.measures.trainers import Trainer
from perfwrap.rules.model import (
    MIN_REPORTED_SHARE,
    MINOR_SHARE,
    SHARE,
    Answer,
    Clear,
    Finding,
    NotChecked,
    Option,
    locate,
    place,
)

NEEDS = ("trainer", "steady_steps", "recorder")


class Limits(Struct, frozen=True):
    """The thresholds of this rule."""

    minor_share: float = MINOR_SHARE
    min_reported_share: float = MIN_REPORTED_SHARE
    min_slowest_share: float = 0.25
    """Share of the steps in which a rank must be the slowest."""
    min_explained_share: float = 0.8
    """Share of the rank's extra time that one part must cover to be named as the cause."""
    min_standard_errors: float = 3.0
    """Minimum extra time in standard errors of the mean: on a busy machine ranks vary from step to step."""
    min_shortage_share: float = 0.5
    """Minimum duration of a rank's lack of cores, over its delay, to be the cause."""


CPU_PARTS = ("data", "forward", "optimizer", "python", "transfer")
"""Parts that take longer if the CPU is short; any other part is a cause of its own."""

WORDS = {
    "data": "waiting for batches",
    "transfer": "copying tensors",
    "forward": "the forward pass",
    "recompute": "recomputing activations",
    "optimizer": "the optimizer",
    "checkpoint": "saving or loading",
    "compile": "compiling",
    "gc": "garbage collection",
    "profiler": "its torch.profiler",
    "python": "its own Python",
}

VERDICTS = {
    "data": "data-bound",
    "python": "python-bound",
    "gc": "python-bound",
    "profiler": "python-bound",
    "checkpoint": "checkpoint/validation-bound",
    "validation": "checkpoint/validation-bound",
}
"""The verdict if the straggler has more of this part; other rules then show where this time goes."""


def check(evidence: Evidence, trainer: Trainer, limits: Limits) -> Answer:
    """Compare the ranks' own work; the finding belongs to the waiting ranks if known, otherwise to the late one."""
    if len(evidence.get(find_ranks_together)) < 2:
        return Clear("There is only one rank.")
    if trainer not in evidence.get(find_ranks_together):
        return Clear("The compared ranks belong to another start, which made more steps.")
    found = evidence.get(find_straggler)
    if found is None:
        return NotChecked("Too few steps were recorded in detail on every rank to compare the ranks.")
    share = found.excess_ns / found.step_ns if found.step_ns else 0.0
    if (
        share < limits.min_reported_share
        or not _persistent(evidence, found, limits)
        or _is_chance(found, limits)
    ):
        return Clear(_why_clear(evidence, found, share, limits))
    skew = evidence.get(find_skew)
    late = skew.of(found.trainer) if skew else None
    is_known = late is not None and late.caused_ns > 0
    if (trainer == found.trainer) == is_known:
        return Clear(f"The others wait for {found.trainer.name}.")
    return [_finding(evidence, found, share, is_known, limits)]


def _persistent(evidence: Evidence, found: Straggler, limits: Limits) -> bool:
    """Return whether it is always the same rank; if waits are known, rare but long delays are enough."""
    skew = evidence.get(find_skew)
    is_waited_for = skew is not None and skew.latest.trainer == found.trainer and skew.always_the_same
    return found.slowest_share >= limits.min_slowest_share or is_waited_for


def _is_chance(found: Straggler, limits: Limits) -> bool:
    """Return whether the ranks may differ by chance, both by the mean and by how often each is the slowest.

    If the machine stopped in some steps, the mean is uncertain, but not which rank is slower in most steps. A rank that
    is slightly slower in most steps may have a slower core.
    """
    by_mean = found.excess_ns < limits.min_standard_errors * found.error_ns
    half = 0.5 + limits.min_standard_errors * (0.25 / found.steps) ** 0.5
    by_count = found.slowest_share < half or found.typical_ns < limits.minor_share * found.step_ns
    return by_mean and by_count


def _why_clear(evidence: Evidence, found: Straggler, share: float, limits: Limits) -> str:
    """Return what was measured instead of a straggler."""
    skew = evidence.get(find_skew)
    seen = (
        f"The slowest rank's own work takes {units.share(share)} of a step more than the next one's; it was the "
        f"slowest in {units.share(found.slowest_share)} of the steps."
    )
    if skew is None or skew.waiting_share < limits.min_reported_share:
        return seen
    return (
        f"{seen} Ranks wait for each other {units.share(skew.waiting_share)} of the time: "
        f"{units.share(skew.latest_share)} of it for {skew.latest.trainer.name}, the rest for different ranks."
    )


def _finding(evidence: Evidence, found: Straggler, share: float, is_known: bool, limits: Limits) -> Finding:
    """Return the finding about the straggler."""
    skew = evidence.get(find_skew)
    whole = sum(max(0.0, more) for more in found.parts.values())
    cause, excess = next(iter(found.parts.items()))
    is_named = whole > 0 and excess >= limits.min_explained_share * whole
    shortage = _shortage(evidence, found, share, cause if is_named else "", limits)
    line = _line(evidence, found, cause) if is_named and shortage is None else None
    where = f" at {place(line, '')}" if line else ""
    if shortage is not None:
        why = f", because it {shortage.text}"
        if shortage.kind == "processors":
            why += f", which other processes used {units.share(shortage.share)} of the time"
    else:
        why = f", because of {WORDS.get(cause, cause)}{where}" if is_named else ""
    verdict = VERDICTS.get(cause, "communication-bound") if is_named else "communication-bound"
    return Finding(
        title=f"All ranks wait for {found.trainer.name} {SHARE} of the time{why}.",
        share=share,
        evidence=tuple(_evidence(evidence, found, whole)),
        options=(
            Option(
                _advice_on_shortage(shortage, found.trainer.name)
                if shortage
                else _advice(cause, is_named, found.trainer.name, where),
                without(share),
            ),
        ),
        verdict="throttled" if shortage else verdict,
        location=locate(line),
        confidence="measured"
        if shortage is None and is_known and skew is not None and skew.measured
        else "inferred",
        claims=pl.col("waits_for") == found.trainer.rank if is_known else None,
        of_job=True,
        ranks=() if found.trainer.rank is None else (found.trainer.rank,),
    )


def _shortage(
    evidence: Evidence, found: Straggler, share: float, part: str, limits: Limits
) -> RankDifference | None:
    """Return the lack of resources that explains at least half of the delay, if no other part explains it."""
    if part and part not in CPU_PARTS:
        return None
    own = [each for each in evidence.get(find_rank_differences) if each.trainer == found.trainer]
    slow = [
        each for each in own if each.kind == "gpu clocks" or each.share >= share * limits.min_shortage_share
    ]
    return slow[0] if slow else None


def _evidence(evidence: Evidence, found: Straggler, whole: float) -> Iterator[str]:
    """Return the evidence: how slow, how often, in which parts, and how long the others waited for it."""
    yield (
        f"It is the slowest in {units.share(found.slowest_share)} of "
        f"{units.counted(found.steps, 'step')} recorded in detail on all ranks; its own work takes "
        f"{units.duration(found.excess_ns)} of {units.duration(found.step_ns)} longer than the next rank's."
    )
    shown = ", ".join(
        f"{WORDS.get(part, part)} {units.duration(more)}"
        for part, more in found.parts.items()
        if more > 0.05 * whole
    )
    yield f"Extra time per step compared with the others: {shown}."
    skew = evidence.get(find_skew)
    late = skew.of(found.trainer) if skew else None
    if skew is None or late is None or not late.caused_ns:
        yield "Where the others wait for it was not recorded."
        return
    whole_wait = sum(rank.caused_ns for rank in skew.ranks)
    how = "measured in the collectives" if skew.measured else "estimated from their backward passes"
    again = "always the same rank" if skew.always_the_same else "other ranks are also last sometimes"
    yield (
        f"It was last at {units.share(late.last / late.sync_points)} of "
        f"{units.counted(late.sync_points, 'synchronization point')}; the others waited "
        f"{units.duration(late.caused_ns)} per step for it ({how}), "
        f"{units.share(late.caused_ns / whole_wait)} of all waiting; {again}."
    )


def _line(evidence: Evidence, found: Straggler, part: str) -> Line | None:
    """Return the line of the straggler in the part that takes longer."""
    if part == "python":
        return _python_line(evidence, found.trainer)
    return busiest_line(evidence.get(find_account, found.trainer), part)


def _python_line(evidence: Evidence, late: Trainer) -> Line | None:
    """Return the line of the late rank after which it runs most Python that the others do not run."""
    others = [trainer for trainer in evidence.get(find_ranks_together) if trainer != late]
    theirs = [
        {(gap.after, gap.until_line): gap.per_step_ns for gap in evidence.get(find_python_gaps, other)}
        for other in others
    ]
    more = {
        gap.after: gap.per_step_ns - median(gaps.get((gap.after, gap.until_line), 0.0) for gaps in theirs)
        for gap in reversed(evidence.get(find_python_gaps, late))
        if gap.after is not None
    }
    return max(more, key=lambda line: more[line], default=None)


def _advice_on_shortage(shortage: RankDifference, name: str) -> str:
    """Return what to change if a rank has fewer resources than the others."""
    if shortage.kind == "gpu clocks":
        return f"Check the cooling and the power limit of {name}'s GPU, or exclude it from the job."
    return (
        f"Give {name} as many cores of its own as the others have (taskset, cpuset, --cpus-per-task, numactl), or stop "
        "the other programs on them."
    )


def _advice(cause: str, is_named: bool, name: str, where: str) -> str:
    """Return what to change."""
    if not is_named:
        return f"Check what {name} does differently: its host, its shard, what only this rank logs or saves."
    if cause == "data":
        return f"Fix the data input of {name}{where}: its shard, its disk, its number of workers."
    if cause == "forward":
        return f"Give {name} as much work as the others: as many samples, and equally long sequences, in each step."
    if cause in ("python", "checkpoint"):
        return f"Do less of it{where} in each step of {name}, or do it in the background; the others wait meanwhile."
    return f"Find out why {WORDS.get(cause, cause)} is slower on {name}{where} than on the others."

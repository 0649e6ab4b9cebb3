"""What one rank is given that the others are not: fewer cores, shared cores, a GPU whose clocks are lowered."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Literal

from perfwrap.measures.processors import core_numbers
from perfwrap.measures.trainers import Trainer
from perfwrap.measures.worker_states import running_and_used

if TYPE_CHECKING:
    from perfwrap.measures.evidence import Evidence

CORES = "cores"
"""The fact that says which cores the training thread may use."""

DENIED_MORE = 0.15
"""Share of the loop for a rank with fewer cores than the others, for one with other cores of the time in which it wants
one: so much more without a core than the others is no chance. Sampling a thread's state leaves some hundredths open."""

THROTTLED_MORE = 0.05
"""Share of the time by which a GPU's clocks must be lowered more often than those of the others."""


@dataclass(frozen=True)
class RankDifference:
    """What sets one rank apart from the others; ``share`` is of its steady loop, ``text`` a sentence without an end."""

    trainer: Trainer
    kind: Literal["processors", "gpu clocks"]
    share: float
    text: str


def find_rank_differences(evidence: Evidence) -> tuple[RankDifference, ...]:
    """Return the differences of the ranks that work together; empty where nobody watched."""
    if len(evidence.together) < 2:
        return ()
    found = []
    for trainer in evidence.together:
        others = [other for other in evidence.together if other != trainer]
        found += [_processors(evidence, trainer, others), _clocks(evidence, trainer, others)]
    return tuple(difference for difference in found if difference is not None)


def _processors(evidence: Evidence, trainer: Trainer, others: list[Trainer]) -> RankDifference | None:
    """Return that a rank had to wait for its cores more often than the others, which may use other ones.

    Among ranks with the same cores, who has most work also waits most for them: that is no cause.
    """
    own = _denied(evidence, trainer)
    known = [denied for other in others if (denied := _denied(evidence, other)) is not None]
    cores = evidence.facts(trainer.process).get(CORES, "")
    theirs = {evidence.facts(other.process).get(CORES, "") for other in others}
    if own is None or not known or not cores or cores in theirs:
        return None
    has_fewer = number_of(cores) < min(number_of(text) for text in theirs)
    share = own[0] - median(denied for denied, _ in known)
    # On a crowded machine all are denied most of what they want: who has fewer cores is then told by the time alone.
    more = share if has_fewer else own[1] - median(ratio for _, ratio in known)
    if more < DENIED_MORE:
        return None
    which = f"may use {_named(cores)}{' only' if has_fewer else ''}, and wanted one"
    return RankDifference(trainer, "processors", share, which)


def _denied(evidence: Evidence, trainer: Trainer) -> tuple[float, float] | None:
    """Return the share of the loop in which a rank wanted a core and had none, and the same over all its wanting."""
    running, used = running_and_used(evidence.timeline, trainer, evidence.account(trainer))
    if not running or used is None:
        return None
    denied = max(0.0, running - used)
    return denied, denied / running


def number_of(cores: str) -> int:
    """Return how many cores a text like ``0-3,8`` names; 0 for none."""
    return len(core_numbers(cores))


def _named(cores: str) -> str:
    return f"core {cores}" if number_of(cores) == 1 else f"cores {cores}"


def _clocks(evidence: Evidence, trainer: Trainer, others: list[Trainer]) -> RankDifference | None:
    """Return that the clocks of a rank's GPU were lowered more often than those of the others' GPUs."""
    own = _throttled(evidence, trainer)
    known = [share for other in others if (share := _throttled(evidence, other)) is not None]
    if own is None or not known or own < THROTTLED_MORE + median(known):
        return None
    gpu = evidence.own_gpus(trainer)[0]
    why = f" ({', '.join(gpu.throttle_reasons)})" if gpu.throttle_reasons else ""
    return RankDifference(
        trainer, "gpu clocks", own - median(known), f"has lowered clocks on its {gpu.name}{why}"
    )


def _throttled(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return how often the clocks of a rank's own GPU were lowered; None where it is not known which one that is."""
    gpus = evidence.own_gpus(trainer)
    return gpus[0].throttled_share if len(gpus) == 1 else None

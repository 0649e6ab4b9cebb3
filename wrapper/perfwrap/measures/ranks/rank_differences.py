"""Resources that one rank lacks compared with the others: fewer or shared cores, a GPU with reduced clocks."""

from __future__ import annotations

from statistics import median
from typing import Literal

from msgspec import Struct

from perfwrap.measures.account.account import find_account
from perfwrap.measures.data_loading.worker_states import running_and_used
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.gpu.own_gpus import find_own_gpus
from perfwrap.measures.host.processors import core_numbers
from perfwrap.measures.ranks.concurrent_loops import find_ranks_together
from perfwrap.measures.trainers import Trainer

CORES = "cores"
"""The fact with the cores that the training thread may use."""

MIN_STARVATION_DIFFERENCE = 0.15
"""Minimum extra CPU starvation compared with the others: as a share of the loop for a rank with fewer cores, as a share
of its time with need for a core for a rank with other cores. Sampling errors are some hundredths."""

MIN_THROTTLED_DIFFERENCE = 0.05
"""Minimum extra share of the time with reduced GPU clocks compared with the others."""


class RankDifference(Struct, frozen=True):
    """What one rank lacks; ``share`` is of its steady loop, ``text`` a sentence without subject and period."""

    trainer: Trainer
    kind: Literal["processors", "gpu clocks"]
    share: float
    text: str


def find_rank_differences(evidence: Evidence) -> tuple[RankDifference, ...]:
    """Return the differences of the ranks that work together; empty if not monitored."""
    if len(evidence.get(find_ranks_together)) < 2:
        return ()
    found = []
    for trainer in evidence.get(find_ranks_together):
        others = [other for other in evidence.get(find_ranks_together) if other != trainer]
        found += [_processors(evidence, trainer, others), _clocks(evidence, trainer, others)]
    return tuple(difference for difference in found if difference is not None)


def _processors(evidence: Evidence, trainer: Trainer, others: list[Trainer]) -> RankDifference | None:
    """Return that a rank waited for its cores more than the others, if these may use other cores.

    Among ranks with the same cores, the one with most work also waits most for them: this is not a cause.
    """
    own = _denied(evidence, trainer)
    known = [denied for other in others if (denied := _denied(evidence, other)) is not None]
    cores = evidence.get(find_facts, trainer.process).get(CORES, "")
    theirs = {evidence.get(find_facts, other.process).get(CORES, "") for other in others}
    if own is None or not known or not cores or cores in theirs:
        return None
    has_fewer = number_of(cores) < min(number_of(text) for text in theirs)
    share = own[0] - median(denied for denied, _ in known)
    # On a busy machine all ranks wait for most of their cores: for fewer cores only the time counts.
    more = share if has_fewer else own[1] - median(ratio for _, ratio in known)
    if more < MIN_STARVATION_DIFFERENCE:
        return None
    which = f"may use{' only' if has_fewer else ''} {_named(cores)}"
    return RankDifference(trainer, "processors", share, which)


def _denied(evidence: Evidence, trainer: Trainer) -> tuple[float, float] | None:
    """Return a rank's CPU starvation as a share of the loop, and as a share of the time in which it was runnable."""
    running, used = running_and_used(evidence.timeline, trainer, evidence.get(find_account, trainer))
    if not running or used is None:
        return None
    denied = max(0.0, running - used)
    return denied, denied / running


def number_of(cores: str) -> int:
    """Return how many cores a text like ``0-3,8`` names; 0 for an empty text."""
    return len(core_numbers(cores))


def _named(cores: str) -> str:
    return f"core {cores}" if number_of(cores) == 1 else f"cores {cores}"


def _clocks(evidence: Evidence, trainer: Trainer, others: list[Trainer]) -> RankDifference | None:
    """Return that the clocks of a rank's GPU were reduced more often than those of the others."""
    own = _throttled(evidence, trainer)
    known = [share for other in others if (share := _throttled(evidence, other)) is not None]
    if own is None or not known or own < MIN_THROTTLED_DIFFERENCE + median(known):
        return None
    gpu = evidence.get(find_own_gpus, trainer)[0]
    why = f" ({', '.join(gpu.throttle_reasons)})" if gpu.throttle_reasons else ""
    return RankDifference(
        trainer, "gpu clocks", own - median(known), f"has reduced clocks on its {gpu.name}{why}"
    )


def _throttled(evidence: Evidence, trainer: Trainer) -> float | None:
    """Return how often the clocks of a rank's own GPU were reduced; None if its GPU is unknown."""
    gpus = evidence.get(find_own_gpus, trainer)
    return gpus[0].throttled_share if len(gpus) == 1 else None

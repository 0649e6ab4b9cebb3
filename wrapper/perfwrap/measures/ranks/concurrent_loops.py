"""Which trainers work at the same time, and which one after another: in groups."""

from __future__ import annotations

from collections.abc import Mapping

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.trainers import Trainer, find_trainers

Loops = Mapping[Trainer, tuple[int, int]]
"""Start and end of each trainer's loop, in nanoseconds."""

MIN_SHARED = 0.5
"""Two loops are simultaneous if they share this much of the shorter one: a loop that starts while another is ending
follows it."""


def find_loops(evidence: Evidence) -> dict[Trainer, tuple[int, int]]:
    """Return when each trainer's steps begin and end, those of the main one first; without steps, its events."""
    main = evidence.get(find_main_trainer)
    order = sorted(evidence.get(find_trainers), key=lambda trainer: trainer != main)
    return {trainer: _loop(evidence, trainer) for trainer in order}


def _loop(evidence: Evidence, trainer: Trainer) -> tuple[int, int]:
    """Return when a trainer's steps begin and end."""
    table = evidence.get(find_steps, trainer).table
    if table.is_empty():
        return trainer.first_ns, trainer.last_ns
    return int(table["start"][0]), int(table["end"][-1])


def find_ranks_together(evidence: Evidence) -> tuple[Trainer, ...]:
    """Return the ranks that work at the same time as the main one, including itself; empty outside a job."""
    return ranks_together(evidence.get(find_loops), evidence.get(find_main_trainer))


def find_concurrent_groups(evidence: Evidence) -> tuple[tuple[Trainer, ...], ...]:
    """Return groups of trainers that work at the same time, in the order of their work."""
    return concurrent_groups(evidence.get(find_loops), evidence.get(find_ranks_together))


def find_trainers_beside(evidence: Evidence, trainer: Trainer) -> tuple[Trainer, ...]:
    """Return the trainers that work at the same time as this one, including itself."""
    together = evidence.get(find_ranks_together)
    if trainer in together:
        return together
    return next(group for group in evidence.get(find_concurrent_groups) if trainer in group)


def find_concurrent_trainers(evidence: Evidence) -> tuple[Trainer, ...]:
    """Return the trainers that work at the same time as the main one, including itself; in a job its ranks."""
    main = evidence.get(find_main_trainer)
    return () if main is None else evidence.get(find_trainers_beside, main)


def ranks_together(loops: Loops, main: Trainer | None) -> tuple[Trainer, ...]:
    """Return the ranks that worked at the same time as the main one, including itself, one trainer each.

    Ranks that a launcher started together always are; the time decides between several trainers of one rank, e.g. if
    one job follows another. Empty if the main trainer is not a rank of a job.
    """
    if main is None or main.rank is None:
        return ()
    found: dict[int, Trainer] = {}
    for trainer, loop in loops.items():
        if trainer.rank is None or trainer.start != main.start:
            continue
        known = found.setdefault(trainer.rank, trainer)
        if trainer == main or (_beside(loop, loops[main]) and not _beside(loops[known], loops[main])):
            found[trainer.rank] = trainer
    return tuple(found.values())


def concurrent_groups(loops: Loops, together: tuple[Trainer, ...]) -> tuple[tuple[Trainer, ...], ...]:
    """Return groups of trainers by time; those of one group all worked at the same time.

    ``loops`` starts with the trainer of the first group; ``together`` are ranks that are known to be one group.
    """
    left = [trainer for trainer in loops if trainer not in together]
    groups = [_joined(list(together), left, loops)] if together else []
    while left:
        groups.append(_joined([left.pop(0)], left, loops))
    return tuple(sorted(groups, key=lambda group: min(loops[trainer] for trainer in group)))


def _joined(group: list[Trainer], left: list[Trainer], loops: Loops) -> tuple[Trainer, ...]:
    """Return the group with those of ``left`` that are simultaneous with all of it, removed from ``left``."""
    first = loops[group[0]]
    for trainer in sorted(left, key=lambda trainer: -_shared(loops[trainer], first)):
        if all(_beside(loops[trainer], loops[other]) for other in group):
            group.append(trainer)
            left.remove(trainer)
    return tuple(trainer for trainer in loops if trainer in group)


def _shared(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Return how long two loops run at the same time; below 0 if there is time between them."""
    return min(one[1], other[1]) - max(one[0], other[0])


def _beside(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Return whether two loops are simultaneous."""
    shorter = min(one[1] - one[0], other[1] - other[0])
    return _shared(one, other) >= MIN_SHARED * shorter

"""Which trainers are at work at the same time, and which one after another: turns."""

from __future__ import annotations

from collections.abc import Mapping

from perfwrap.measures.trainers import Trainer

Loops = Mapping[Trainer, tuple[int, int]]
"""When each trainer's loop begins and ends, in nanoseconds."""

LEAST_SHARED = 0.5
"""Two loops are beside each other when they share this much of the shorter one: one that begins while another comes to
its end follows it."""


def ranks_together(loops: Loops, main: Trainer | None) -> tuple[Trainer, ...]:
    """Return the ranks that were at work at the same time as the main one, itself included, one trainer each.

    Ranks that a launcher started together are, whatever their clocks say; time decides between several of one rank, as
    where one job follows on another. Empty where the main trainer is no rank of a job.
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


def find_turns(loops: Loops, together: tuple[Trainer, ...]) -> tuple[tuple[Trainer, ...], ...]:
    """Return the trainers in turns, by time: those of one turn were all at work at once.

    ``loops`` begin with the trainer around which the first turn is sought; ``together`` are ranks known to be one.
    """
    left = [trainer for trainer in loops if trainer not in together]
    turns = [_joined(list(together), left, loops)] if together else []
    while left:
        turns.append(_joined([left.pop(0)], left, loops))
    return tuple(sorted(turns, key=lambda turn: min(loops[trainer] for trainer in turn)))


def _joined(turn: list[Trainer], left: list[Trainer], loops: Loops) -> tuple[Trainer, ...]:
    """Return the turn with those of ``left`` that are beside all of it, which are taken from there."""
    first = loops[turn[0]]
    for trainer in sorted(left, key=lambda trainer: -_shared(loops[trainer], first)):
        if all(_beside(loops[trainer], loops[other]) for other in turn):
            turn.append(trainer)
            left.remove(trainer)
    return tuple(trainer for trainer in loops if trainer in turn)


def _shared(one: tuple[int, int], other: tuple[int, int]) -> int:
    """Return how long two loops go on at the same time; below 0 where there is time between them."""
    return min(one[1], other[1]) - max(one[0], other[0])


def _beside(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Say whether two loops are beside each other."""
    shorter = min(one[1] - one[0], other[1] - other[0])
    return _shared(one, other) >= LEAST_SHARED * shorter

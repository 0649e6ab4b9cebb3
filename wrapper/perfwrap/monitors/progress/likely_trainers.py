"""Finds the Python processes of this machine that may train, from their start; in the end only the one that does."""

from __future__ import annotations

import time

from perfwrap.monitors.processes.pythons import Python, Pythons
from perfwrap.monitors.progress.first_trainer import FirstTrainer

LOOK_NS = 1_000_000_000
"""How often to look for a trainer, which reads journals; new processes are looked for at each call."""
MAX_CANDIDATES = 4
"""Processes that are sampled before one of them trains: a launcher and some ranks."""


class LikelyTrainers:
    """The first processes of the run, until one trains; then only the lowest rank of those that do."""

    def __init__(self, first_trainer: FirstTrainer, candidates: Pythons) -> None:
        self._first_trainer, self._candidates = first_trainer, candidates
        self._seen: set[Python] = set()
        self._next_look_ns = 0
        self.chosen: Python | None = None
        """The process that trains, once it is known."""

    def fresh(self) -> list[Python]:
        """Return the processes that were found since the last call."""
        if self.chosen is not None:
            return []
        now_ns = time.monotonic_ns()
        if now_ns >= self._next_look_ns:
            self._next_look_ns = now_ns + LOOK_NS
            for trainer in self._first_trainer.fresh():
                self.chosen = trainer
                return [] if trainer in self._seen else [trainer]
        found = self._candidates.fresh()[: MAX_CANDIDATES - len(self._seen)]
        self._seen.update(found)
        return found

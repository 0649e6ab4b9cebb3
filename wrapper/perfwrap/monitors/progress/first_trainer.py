"""Finds the training process of this machine, once it has made some steps."""

from __future__ import annotations

import time
from pathlib import Path

from perfwrap.monitors.processes.pythons import Python
from perfwrap.monitors.progress.followed_journals import FollowedJournals

FIRST_STEPS = 3
"""Minimum number of steps: the first step does not show that more will follow."""


class FirstTrainer:
    """The first process that has trained for some steps, or the lowest rank of several. Then the search ends."""

    def __init__(self, folder: Path, host: str) -> None:
        self._journals: FollowedJournals | None = FollowedJournals(folder, host)

    def fresh(self) -> list[Python]:
        """Return the process once, when it was found."""
        if self._journals is None:
            return []
        self._journals.refresh(time.monotonic_ns())
        for followed in self._journals.trainers:
            if followed.alive and followed.progress.ends.count >= FIRST_STEPS:
                self._journals = None
                return [Python(followed.pid, followed.progress.start_ticks)]
        return []

"""Finds the process of this machine that trains, once it has made some steps."""

from __future__ import annotations

import time
from pathlib import Path

from perfwrap.monitors.followed_journals import FollowedJournals
from perfwrap.monitors.pythons import Python

FIRST_STEPS = 3
"""Steps that are waited for: what happens once tells nothing of those that follow."""


class FirstTrainer:
    """The first process that has trained for some steps; of several the lowest rank. Then nobody is looked for."""

    def __init__(self, folder: Path, host: str) -> None:
        self._journals: FollowedJournals | None = FollowedJournals(folder, host)

    def fresh(self) -> list[Python]:
        """Return the process when it has come, once."""
        if self._journals is None:
            return []
        self._journals.refresh(time.monotonic_ns())
        for followed in self._journals.trainers:
            if followed.alive and followed.progress.ends.count >= FIRST_STEPS:
                self._journals = None
                return [Python(followed.pid, followed.progress.start_ticks)]
        return []

"""Follow the journals of this machine's recorded processes: which of them train, and which made progress."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfwrap.journal_words import read_words
from perfwrap.monitors.processes.pythons import Python, is_alive
from perfwrap.monitors.progress.journal_progress import JournalProgress
from perfwrap.monitors.progress.live_journal import has_ended

FIRST_BYTES = 1 << 16
"""Size of the beginning of a journal, which has the facts about the process."""
MONITOR, WORKER = "monitor", "worker"
MIN_INTERVALS = 1
"""Minimum number of steps whose duration is known; before, the usual step time is unknown."""


@dataclass
class Followed:
    """One recorded process."""

    progress: JournalProgress
    role: str
    rank: int | None
    sequence: int
    parent: str = ""
    """The process that started it."""
    world_size: int = 1
    alive: bool = True
    steps_when_asked: int = 0
    """Its number of steps when its rank was last read."""

    @property
    def pid(self) -> int:
        """Its number."""
        return self.progress.pid

    @property
    def trains(self) -> bool:
        """Whether it has made training steps."""
        return self.role != WORKER and self.progress.ends.times.count >= MIN_INTERVALS

    @property
    def is_through(self) -> bool:
        """Whether it has ended, or has reached the end of its loop, as far as known."""
        if not self.alive or has_ended(self.progress.path):
            return True
        return self.progress.has_left_loop and not self.progress.open_calls()


class FollowedJournals:
    """The recorded processes of one machine."""

    def __init__(self, folder: Path, host: str) -> None:
        self._folder, self._prefix = folder, host + "-"
        self._changed_ns = 0
        self._ignored: set[str] = set()
        self._known: dict[Python, Followed] = {}

    def refresh(self, now_ns: int) -> bool:
        """Read what is new in all of them; return whether any made progress."""
        self._find_new()
        moved = False
        for followed in self._known.values():
            if not followed.alive:
                continue
            # Checked first, so that nothing that a process writes before it ends is missed.
            alive = is_alive(Python(followed.pid, followed.progress.start_ticks))
            try:
                moved |= followed.progress.refresh(now_ns)
                _ask_rank(followed)
            except OSError:
                alive = False
            followed.alive = alive
        # Trainers are kept: a rank that has ended explains why others wait.
        self._known = {
            python: followed for python, followed in self._known.items() if followed.alive or followed.trains
        }
        return moved

    @property
    def trainers(self) -> list[Followed]:
        """Those that train, by rank, including ranks of the same job that have ended while others train."""
        trained = [followed for followed in self._known.values() if followed.trains]
        living = {(followed.parent, followed.rank) for followed in trained if followed.alive}
        parents = {parent for parent, _ in living}
        found = [
            one
            for one in trained
            if one.alive
            or (one.rank is not None and one.parent in parents and (one.parent, one.rank) not in living)
        ]
        return sorted(found, key=lambda followed: (followed.rank is None, followed.rank or 0, followed.pid))

    @property
    def living(self) -> dict[int, Followed]:
        """All living processes, by pid."""
        return {followed.pid: followed for followed in self._known.values() if followed.alive}

    def _find_new(self) -> None:
        """Add journals that were created since the last call."""
        changed_ns = self._folder.stat().st_mtime_ns
        if changed_ns == self._changed_ns:
            return
        self._changed_ns = changed_ns
        for path in self._folder.iterdir():
            if not path.name.startswith(self._prefix) or path.name in self._ignored:
                continue
            if not self._take_in(path):
                self._changed_ns = 0  # It has not written its facts yet: read it again.

    def _take_in(self, path: Path) -> bool:
        """Start to follow a journal; return whether its process is known now."""
        fields = path.stem.rsplit("-", 3)
        if len(fields) != 4 or not all(field.isdecimal() for field in fields[1:]):
            self._ignored.add(path.name)
            return True
        pid, ticks, sequence = map(int, fields[1:])
        python = Python(pid, ticks)
        alive = is_alive(python)
        facts = _facts(path)
        if "role" not in facts and alive:
            return False
        self._ignored.add(path.name)
        known = self._known.get(python)
        role = facts.get("role", "")
        if alive and role not in (MONITOR, "") and (known is None or known.sequence < sequence):
            progress = JournalProgress(path, pid, ticks)
            followed = Followed(progress, role, None, sequence, facts.get("ppid", ""))
            _take_rank(followed, facts)
            self._known[python] = followed
        return True


def _facts(path: Path) -> dict[str, str]:
    """Return the facts that a process has written so far."""
    return read_words(path, most_bytes=FIRST_BYTES).facts


def _take_rank(followed: Followed, facts: dict[str, str]) -> None:
    """Store its rank and the number of ranks."""
    rank, world = facts.get("rank", ""), facts.get("world_size", "")
    followed.rank = int(rank) if rank.isdecimal() else None
    followed.world_size = int(world) if world.isdecimal() else 1


def _ask_rank(followed: Followed) -> None:
    """Read the rank again if a trainer has none: without a variable, it is written once the ranks have connected.

    Repeated when the number of steps has doubled, so that a trainer that never has a rank is read a few times only.
    """
    steps = followed.progress.ends.count
    if followed.rank is None and followed.trains and steps > 2 * followed.steps_when_asked:
        followed.steps_when_asked = steps
        _take_rank(followed, _facts(followed.progress.path))

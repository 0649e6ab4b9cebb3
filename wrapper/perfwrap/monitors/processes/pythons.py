"""Finds the Python processes whose stacks to sample: those with the recorder, or those of a running job."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple, Protocol

from perfwrap.journal_words import read_words
from perfwrap.monitors.processes.process_tree import ProcessTree, StartRecords
from perfwrap.monitors.processes.procfs import read_stat
from perfwrap.monitors.processes.uninjected import INTERPRETER

SAMPLED_ROLES = ("main", "worker")
"""Roles of the recorder whose stacks show the training; launchers, helpers and monitors only wait."""
FIRST_BYTES = 1 << 16
"""Size of the beginning of a journal, which has the facts about the process."""


FORKED = frozenset([b"fork"])
MIN_AGE_NS = 200_000_000
"""A younger process may still start its interpreter, or be a short helper."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Python(NamedTuple):
    """A process to sample; both numbers together identify it."""

    pid: int
    start_ticks: int


class Pythons(Protocol):
    """Finds processes."""

    def fresh(self) -> list[Python]:
        """Return the processes that were found since the last call."""


class RecordedPythons:
    """The processes of this machine with a journal, which they open when they import torch."""

    def __init__(self, folder: Path, host: str) -> None:
        self._folder, self._prefix = folder, host + "-"
        self._changed_ns = 0
        self._seen: set[str] = set()

    def fresh(self) -> list[Python]:
        """Return the training processes and workers that were found since the last call."""
        changed_ns = self._folder.stat().st_mtime_ns
        if changed_ns == self._changed_ns:
            return []
        names = [path.name for path in self._folder.iterdir() if path.name.startswith(self._prefix)]
        roles = {name: journal_role(self._folder / name) for name in names if name not in self._seen}
        self._seen.update(name for name, role in roles.items() if role)
        # A journal without a role is read again later.
        self._changed_ns = changed_ns if all(roles.values()) else 0
        return [found for name, role in roles.items() if role in SAMPLED_ROLES and (found := _named(name))]


class StartedPythons:
    """The processes of this machine with a start record, a moment after their start; forked ones are left out."""

    def __init__(self, starts: Path) -> None:
        self._starts = StartRecords(starts, without=FORKED)
        self._seen: set[tuple[int, int]] = set()

    def fresh(self) -> list[Python]:
        """Return the processes that were found since the last call."""
        self._starts.follow()
        new = sorted(self._starts.reached() - self._seen)
        found = [Python(*identity) for identity in new if _age_ns(identity[1]) >= MIN_AGE_NS]
        self._seen.update(found)
        return [python for python in found if is_alive(python) and not _is_helper(python.pid)]


class TreePythons:
    """The Pythons of a running job: the process ``root`` and all its present and future descendants."""

    def __init__(self, root: int, starts: Path) -> None:
        self._tree = ProcessTree(StartRecords(starts))
        self._tree.plant(root)
        self._seen: set[Python] = set()
        self._found: set[Python] = set()

    def fresh(self) -> list[Python]:
        """Return the Pythons that were found since the last call."""
        self._tree.scan()
        living = {Python(pid, ticks) for pid, ticks in self._tree.members.items()}
        # A process that has just forked still runs its parent's program: those that are not Python are checked again.
        came = [each for each in living - self._found if _is_python(each.pid, each not in self._seen)]
        self._seen, self._found = living, (self._found & living) | set(came)
        return came


def _is_helper(pid: int) -> bool:
    """Return whether this is a process that multiprocessing starts to clean up."""
    try:
        return b"_tracker import main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _age_ns(start_ticks: int) -> int:
    """Return how long ago a process was started."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - start_ticks * 1_000_000_000 // TICKS_PER_S


def journal_role(path: Path) -> str:
    """Return the role that a journal contains, "" if there is none yet."""
    try:
        return read_words(path, most_bytes=FIRST_BYTES).facts.get("role", "")
    except OSError:
        return ""


def _named(journal: str) -> Python | None:
    """Return the living process of this machine in the name of a journal."""
    fields = journal.rpartition(".")[0].rsplit("-", 3)
    if len(fields) != 4 or not (fields[1].isdecimal() and fields[2].isdecimal()):
        return None
    python = Python(int(fields[1]), int(fields[2]))
    return python if is_alive(python) else None


def is_alive(python: Python) -> bool:
    """Return whether this process is still alive."""
    stat = read_stat(python.pid)
    return stat is not None and stat.start_ticks == python.start_ticks and stat.state not in (b"Z", b"X")


def _is_python(pid: int, by_libraries: bool) -> bool:
    """Return whether a process runs Python, by its executable or, more expensive, by a mapped Python library."""
    try:
        if INTERPRETER.match(Path(f"/proc/{pid}/exe").readlink().name):
            return True
        return by_libraries and b"/libpython3" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False

"""Finds the Python processes whose stacks are worth sampling: those that record, or those of a running job."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from perfwrap.journal_format import DESCRIBE, HEADER, MAGIC, RECORD
from perfwrap.monitors.process_tree import ProcessTree, StartRecords
from perfwrap.monitors.procfs import read_stat
from perfwrap.monitors.uninjected import INTERPRETER

SAMPLED_ROLES = ("main", "worker")
"""Roles of a recorder whose stacks tell of the training; launchers, helpers and monitors only wait."""
FIRST_BYTES = 1 << 16
"""A journal's beginning, in which the process says what it is."""
PIECE_BYTES = 24


class Python(NamedTuple):
    """A process that is to be sampled; both numbers together name it for good."""

    pid: int
    start_ticks: int


class Pythons(Protocol):
    """Somebody who finds processes."""

    def fresh(self) -> list[Python]:
        """Return the processes that came since the last question."""


class RecordedPythons:
    """The processes of this machine that opened a journal, which they do when they import torch."""

    def __init__(self, folder: Path, host: str) -> None:
        self._folder, self._prefix = folder, host + "-"
        self._changed_ns = 0
        self._seen: set[str] = set()

    def fresh(self) -> list[Python]:
        """Return the training processes and workers that came since the last question."""
        changed_ns = self._folder.stat().st_mtime_ns
        if changed_ns == self._changed_ns:
            return []
        names = [path.name for path in self._folder.iterdir() if path.name.startswith(self._prefix)]
        roles = {name: journal_role(self._folder / name) for name in names if name not in self._seen}
        self._seen.update(name for name, role in roles.items() if role)
        # A journal that does not tell its role yet is looked at again.
        self._changed_ns = changed_ns if all(roles.values()) else 0
        return [found for name, role in roles.items() if role in SAMPLED_ROLES and (found := _named(name))]


class TreePythons:
    """The Pythons of a job that runs already: the process ``root`` and all that it started or will start."""

    def __init__(self, root: int, starts: Path) -> None:
        self._tree = ProcessTree(StartRecords(starts))
        self._tree.plant(root)
        self._seen: set[Python] = set()
        self._found: set[Python] = set()

    def fresh(self) -> list[Python]:
        """Return the Pythons that came since the last question."""
        self._tree.scan()
        living = {Python(pid, ticks) for pid, ticks in self._tree.members.items()}
        # One that has just been forked is still its parent's program: all that are no Python are asked again.
        came = [each for each in living - self._found if _is_python(each.pid, each not in self._seen)]
        self._seen, self._found = living, (self._found & living) | set(came)
        return came


def journal_role(path: Path) -> str:
    """Return the role that a journal tells, "" where it does not, yet."""
    try:
        with open(path, "rb") as file:
            data = file.read(FIRST_BYTES)
    except OSError:
        return ""
    if not data.startswith(MAGIC):
        return ""
    texts: dict[int, bytes] = {}
    told = []
    for place in range(HEADER.size, len(data) - RECORD.size + 1, RECORD.size):
        _, _, value, name, piece, kind = RECORD.unpack_from(data, place)
        if kind == DESCRIBE["TEXT"] and piece == 0:
            texts[name] = data[place : place + PIECE_BYTES].rstrip(b"\0")
        elif kind == DESCRIBE["FACT"]:
            told.append((name, value))
    roles = [texts.get(value, b"") for name, value in told if texts.get(name) == b"role"]
    return roles[-1].decode("utf-8", "replace") if roles else ""


def _named(journal: str) -> Python | None:
    """Return the living process of this machine that a journal's name names."""
    fields = journal.rpartition(".")[0].rsplit("-", 3)
    if len(fields) != 4 or not (fields[1].isdigit() and fields[2].isdigit()):
        return None
    python = Python(int(fields[1]), int(fields[2]))
    return python if is_alive(python) else None


def is_alive(python: Python) -> bool:
    """Say whether that very process is still there."""
    stat = read_stat(python.pid)
    return stat is not None and stat.start_ticks == python.start_ticks and stat.state not in (b"Z", b"X")


def _is_python(pid: int, by_libraries: bool) -> bool:
    """Say whether a process runs Python, by its executable or, which is dearer, by a library of Python's in it."""
    try:
        if INTERPRETER.match(Path(f"/proc/{pid}/exe").readlink().name):
            return True
        return by_libraries and b"/libpython3" in Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return False

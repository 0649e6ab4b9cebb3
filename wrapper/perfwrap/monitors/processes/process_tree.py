"""Find the processes that the command started, directly or not, and those with a start record."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from perfwrap.monitors.processes.procfs import PROC, read_stat
from perfwrap.run_folder import START_FIELDS

EVENT, PID, START_TICKS = map(START_FIELDS.index, ("event", "pid", "start_ticks"))


class StartRecords:
    """The lines that interpreters with the recorder write into ``starts/``, read as they are written."""

    def __init__(self, folder: Path, without: frozenset[bytes] = frozenset()) -> None:
        """``without`` are events whose lines are skipped."""
        self._folder, self._without = folder, without
        self._read: dict[str, int] = {}
        self._reached: set[tuple[int, int]] = set()

    def follow(self) -> None:
        """Read the lines that were added since the last call."""
        try:
            with os.scandir(self._folder) as entries:
                sizes = {entry.path: entry.stat().st_size for entry in entries if entry.name.endswith(".log")}
        except FileNotFoundError:
            return
        for path, size in sizes.items():
            place = self._read.get(path, 0)
            if size > place:
                with open(path, "rb") as file:
                    file.seek(place)
                    lines, newline, _ = file.read().rpartition(b"\n")
                self._read[path] = place + len(lines) + len(newline)
                self._reached.update(_identities(lines, self._without))

    def reached(self) -> frozenset[tuple[int, int]]:
        """Return (pid, start ticks) of each process with a start record that was not forgotten."""
        return frozenset(self._reached)

    def keep(self, living: set[tuple[int, int]]) -> None:
        """Forget all but these, so that memory use does not grow with the length of the run."""
        self._reached &= living


class ProcessTree:
    """The command's process and its living descendants.

    A process whose parent ended before the next scan belongs to init and cannot be distinguished from processes of
    other programs, unless it has a start record.
    """

    def __init__(self, starts: StartRecords, proc: Path = PROC) -> None:
        self._starts, self._proc = starts, proc
        self._entries: dict[int, int] = {}
        self._roots: set[int] = set()
        self.members: dict[int, int] = {}
        """Start ticks by pid."""

    def plant(self, pid: int) -> None:
        """Add this process, and from the next scan on its descendants."""
        self._roots.add(pid)
        self._entries = {}

    def scan(self) -> list[int]:
        """Examine every process of this machine that is new since the last scan; return the new members."""
        entries = {int(entry.name): entry.inode() for entry in _numbered(self._proc)}
        # The folder of a process gets a new inode number, even if the pid is reused.
        fresh = [pid for pid, inode in entries.items() if self._entries.get(pid) != inode]
        self._entries = entries
        stats = {pid: stat for pid in fresh if (stat := read_stat(pid, self._proc)) is not None}
        known = {pid: ticks for pid, ticks in self.members.items() if pid in entries}
        self.members = {
            pid: ticks for pid, ticks in known.items() if pid not in stats or stats[pid].start_ticks == ticks
        }
        parents = {pid: stat.parent for pid, stat in stats.items() if pid not in self.members}
        joined = [pid for pid in parents if self._descends(pid, parents)]
        self.members.update({pid: stats[pid].start_ticks for pid in joined})
        return joined

    def follow(self) -> list[int]:
        """Add the living processes with a start record that are no longer descendants."""
        self._starts.follow()
        joined = []
        for pid, ticks in self._starts.reached():
            stat = read_stat(pid, self._proc) if self.members.get(pid) != ticks else None
            if stat is not None and stat.start_ticks == ticks:
                self.members[pid] = ticks
                joined.append(pid)
        return joined

    def _descends(self, pid: int, parents: dict[int, int]) -> bool:
        """Return whether a new process descends from a root or a member through other new processes."""
        seen: set[int] = set()
        while pid not in self._roots and pid not in self.members:
            seen.add(pid)
            pid = parents.get(pid, 0)
            if pid == 0 or pid in seen:
                return False
        return True


def _numbered(folder: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        yield from (entry for entry in entries if entry.name.isdecimal())


def _identities(lines: bytes, without: frozenset[bytes]) -> set[tuple[int, int]]:
    """Return (pid, start ticks) of each complete line that has none of the events ``without``."""
    found = set()
    for line in lines.split(b"\n"):
        words = line.split(b"\t")
        is_whole = len(words) >= len(START_FIELDS) and words[PID].isdigit() and words[START_TICKS].isdigit()
        if is_whole and words[EVENT] not in without:
            found.add((int(words[PID]), int(words[START_TICKS])))
    return found

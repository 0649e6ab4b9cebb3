"""The processes on a GPU, and whose they are.

NVML tells the pids of the whole machine; from inside a container they cannot be matched, and then nobody is
called a stranger.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.process_tree import StartRecords
from perfwrap.monitors.procfs import GONE, PROC, read_stat

MACHINE_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of linux/proc_ns.h: the processes of the machine, not of a container."""
SHARED_SERVER = "nvidia-cuda-mps"
"""Begins the names of the processes that work on behalf of many (MPS): theirs may be this run's work."""
RUN, OTHER, UNKNOWN = "run", "other", "unknown"


class Owners:
    """Says whether a process belongs to this run: to the launcher's descendants, or reached by perfwrap."""

    def __init__(self, starts: Path | None, launcher: int, machine: bool, proc: Path = PROC) -> None:
        self._starts = StartRecords(starts) if starts is not None else None
        self._launcher, self._machine, self._proc = launcher, machine, proc

    def owner(self, pid: int) -> str:
        """Return ``run``, ``other`` (other people's, or another job's) or ``unknown``."""
        stat = read_stat(pid, self._proc)
        if stat is None:
            return UNKNOWN
        if self._starts is not None:
            self._starts.follow()
            if (pid, stat.start_ticks) in self._starts.reached():
                return RUN
        name = self.name(pid)
        while stat is not None and pid > 1:
            if pid == self._launcher:
                return RUN
            pid = stat.parent
            stat = read_stat(pid, self._proc)
        return OTHER if self._machine and not name.startswith(SHARED_SERVER) else UNKNOWN

    def name(self, pid: int) -> str:
        """Return the short name that the machine shows everybody; never other people's command lines."""
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()
        except (*GONE, PermissionError):
            return ""


class Written(Protocol):
    """A GPU that series are written about."""

    name: str

    def write(self, now_ns: int, values: list[tuple[str, float]]) -> None:
        """Write one value for each of these metrics."""


class GpuProcesses:
    """Writes the memory of each process on one GPU or slice, and how much of it is other people's."""

    def __init__(self, journal: JournalWriter, gpu: Written, owners: Owners) -> None:
        self._journal, self._gpu, self._owners = journal, gpu, owners
        self._known: dict[int, tuple[int, str]] = {}

    def write(self, now_ns: int, found: list[tuple[int, float | None]]) -> None:
        """Write the processes that are there now, each with its pid and its memory where that is known."""
        known, self._known = self._known, {}
        values, others = [], []
        for pid, memory in found:
            self._known[pid] = known.get(pid) or self._meet(pid)
            series, owner = self._known[pid]
            if memory is not None:
                values.append((series, memory))
            if owner == OTHER:
                others.append(memory)
        self._journal.samples(now_ns, values)
        self._gpu.write(now_ns, [("processes", float(len(found))), *_foreign(others)])

    def _meet(self, pid: int) -> tuple[int, str]:
        """Write down who a process is; its series and its owner stay known as long as it is there."""
        gpu, owner = self._gpu.name, self._owners.owner(pid)
        self._journal.fact(f"{gpu}/process/{pid}/owner", owner, keep=False)
        if owner == OTHER:
            self._journal.fact(f"{gpu}/process/{pid}/program", self._owners.name(pid), keep=False)
        return self._journal.series(gpu, f"process/{pid}/memory_used_bytes", keep=False), owner


def of_this_run(starts: Path | None) -> Owners:
    """Return who owns what, for a process that the launcher started, as the monitors' is."""
    try:
        machine = str((PROC / "self/ns/pid").readlink()) == MACHINE_NAMESPACE
    except OSError:
        machine = False
    return Owners(starts, os.getppid(), machine)


def _foreign(others: list[float | None]) -> list[tuple[str, float]]:
    """Return how many processes are other people's, and their memory where each one's is known."""
    values = [("other_processes", float(len(others)))]
    known = [memory for memory in others if memory is not None]
    return [*values, ("other_memory_used_bytes", sum(known, 0.0))] if len(known) == len(others) else values

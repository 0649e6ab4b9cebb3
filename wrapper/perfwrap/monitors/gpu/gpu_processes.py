"""The processes on a GPU, and their owners.

NVML reports the pids of the whole machine. Inside a container they cannot be matched; then no process is counted as
another program's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.processes.process_tree import StartRecords
from perfwrap.monitors.processes.procfs import GONE, PROC, read_stat

MACHINE_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of linux/proc_ns.h: the processes of the machine, not of a container."""
SHARED_SERVER = "nvidia-cuda-mps"
"""Prefix of processes that work for several programs (MPS), maybe including this run."""
RUN, OTHER, UNKNOWN = "run", "other", "unknown"


class Owners:
    """Decides whether a process belongs to this run: a descendant of the launcher, or with a start record."""

    def __init__(self, starts: Path | None, launcher: int, machine: bool, proc: Path = PROC) -> None:
        self._starts = StartRecords(starts) if starts is not None else None
        self._launcher, self._machine, self._proc = launcher, machine, proc

    def owner(self, pid: int) -> str:
        """Return ``run``, ``other`` (another user or another job) or ``unknown``."""
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
        """Return the short name, which is public; never the command lines of other users."""
        try:
            return (self._proc / str(pid) / "comm").read_text(errors="replace").strip()
        except (*GONE, PermissionError):
            return ""


class Written(Protocol):
    """A GPU with series."""

    name: str

    def write(self, now_ns: int, values: list[tuple[str, float]]) -> None:
        """Write one value for each of these metrics."""


class GpuProcesses:
    """Writes the memory of each process on one GPU or slice, and the part that belongs to other programs."""

    def __init__(self, journal: JournalWriter, gpu: Written, owners: Owners) -> None:
        self._journal, self._gpu, self._owners = journal, gpu, owners
        self._known: dict[int, tuple[int, str]] = {}

    def write(self, now_ns: int, found: list[tuple[int, float | None]]) -> None:
        """Write the current processes, each with its pid and, if known, its memory."""
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
        """Record the facts of a process; its series and owner are kept while it is there."""
        gpu, owner = self._gpu.name, self._owners.owner(pid)
        self._journal.fact(f"{gpu}/process/{pid}/owner", owner, keep=False)
        if owner == OTHER:
            self._journal.fact(f"{gpu}/process/{pid}/program", self._owners.name(pid), keep=False)
        return self._journal.series(gpu, f"process/{pid}/memory_used_bytes", keep=False), owner


def of_this_run(starts: Path | None) -> Owners:
    """Return the owners, for a process that the launcher started, such as that of the monitors."""
    try:
        machine = str((PROC / "self/ns/pid").readlink()) == MACHINE_NAMESPACE
    except OSError:
        machine = False
    return Owners(starts, os.getppid(), machine)


def _foreign(others: list[float | None]) -> list[tuple[str, float]]:
    """Return the number of processes of other programs, and their memory if it is known for all."""
    values = [("other_processes", float(len(others)))]
    known = [memory for memory in others if memory is not None]
    return [*values, ("other_memory_used_bytes", sum(known, 0.0))] if len(known) == len(others) else values

"""Watch how much CPU time each program used that does not belong to the run.

Every process of the machine is read every two seconds, less often where that costs more than its share of a core. Only
the short name of a program is recorded, never its command line. In a container, programs outside of it are not visible.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.processes.procfs import GONE, PROC, TICKS_PER_SECOND, Stat, parse_stat
from perfwrap.monitors.rounds import SECOND_NS
from perfwrap.redaction import masked

INTERVAL_NS = 2 * SECOND_NS
SHARE = 0.001
"""The share of a core that the readings may use."""
MIN_INTERVAL_NS = SECOND_NS // 5
"""A last reading that is closer to the one before is left out: CPU times are counted in ticks of 10 ms."""
MAX_PROGRAMS = 5
"""How many programs get a value at each reading: those that used most."""
MIN_CORES = 0.02
"""Mean number of cores below which a program gets none."""
TOTAL = "other_cores"
"""The series of all other programs together."""
PREFIX, SUFFIX = "program/", "/cpu_cores"
"""Before and after a program's name in the name of its series."""


class OtherPrograms:
    """Writes the series ``other_cores`` of the host, and one of each program that used much CPU time."""

    def __init__(self, journal: JournalWriter, launcher: int, proc: Path = PROC) -> None:
        """``launcher`` is the process whose descendants all belong to the run."""
        self._journal, self._launcher, self._proc = journal, launcher, proc
        self._total = journal.series("host", TOTAL)
        self._series: dict[str, int] = {}
        self._ticks: dict[tuple[int, int], int] | None = None
        self._last_ns = self._due_ns = 0

    def look(self, now_ns: int, own: Collection[int]) -> None:
        """Read all processes if it is time; ``own`` are processes of the run besides the launcher's descendants."""
        if now_ns < self._due_ns:
            return
        begin_ns = time.thread_time_ns()
        self._read(now_ns, own)
        cost_ns = time.thread_time_ns() - begin_ns
        self._due_ns = now_ns + max(INTERVAL_NS, int(cost_ns / SHARE))

    def close(self, now_ns: int, own: Collection[int]) -> None:
        """Read all processes once more, for the time since the last reading."""
        if self._ticks is not None and now_ns - self._last_ns >= MIN_INTERVAL_NS:
            self._read(now_ns, own)

    def _read(self, now_ns: int, own: Collection[int]) -> None:
        """Write what others used since the last reading."""
        found = {pid: (name, stat) for pid, name, stat in _processes(self._proc)}
        before, seconds = self._ticks, (now_ns - self._last_ns) / SECOND_NS
        self._ticks = {(pid, stat.start_ticks): _used(stat) for pid, (_, stat) in found.items()}
        self._last_ns = now_ns
        if before is None:
            return
        parents = {pid: stat.parent for pid, (_, stat) in found.items()}
        members = {*own, self._launcher}
        used = Counter[str]()
        for pid, (name, stat) in found.items():
            ticks = _used(stat) - before.get((pid, stat.start_ticks), 0)
            if ticks > 0 and not _descends(pid, members, parents):
                used[name] += ticks
        per_core = TICKS_PER_SECOND * seconds
        values = [(self._total, used.total() / per_core)]
        values += [
            (self._of(name), ticks / per_core)
            for name, ticks in used.most_common(MAX_PROGRAMS)
            if ticks >= MIN_CORES * per_core
        ]
        self._journal.samples(now_ns, values)

    def _of(self, name: str) -> int:
        """Return the series of a program; a slash would end its name."""
        shown = masked(name).replace("/", "_") or "?"
        if shown not in self._series:
            self._series[shown] = self._journal.series("host", f"{PREFIX}{shown}{SUFFIX}", keep=False)
        return self._series[shown]


def _used(stat: Stat) -> int:
    """Return the CPU time of a process, in ticks."""
    return stat.user_ticks + stat.system_ticks


def _descends(pid: int, members: set[int], parents: dict[int, int]) -> bool:
    """Return whether a process or one of its ancestors is one of these."""
    seen = set[int]()
    while pid not in members:
        seen.add(pid)
        pid = parents.get(pid, 0)
        if pid == 0 or pid in seen:
            return False
    return True


def _processes(proc: Path) -> Iterator[tuple[int, str, Stat]]:
    """Yield pid, short name and stat of each process that this user may read."""
    with os.scandir(proc) as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    for pid in pids:
        try:
            text = (proc / str(pid) / "stat").read_bytes()
        except (*GONE, PermissionError):
            continue
        name = text[text.index(b"(") + 1 : text.rindex(b")")]
        yield pid, name.decode("utf-8", "replace"), parse_stat(text)

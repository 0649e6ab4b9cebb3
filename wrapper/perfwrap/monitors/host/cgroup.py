"""Watch the control group that the run lives in, versions 1 and 2: CPU quota, memory, pressure.

Which files: https://docs.kernel.org/scheduler/sched-bwc.html (version 1) and
https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu (version 2). A group is limited by all groups above
it, so all of them are read, as far as this mount namespace shows them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from perfwrap.control_groups import groups, quota, text
from perfwrap.monitors.host import pressure
from perfwrap.monitors.host.group_memory import GroupMemory
from perfwrap.monitors.monitor_journal import JournalWriter

NO_QUOTA = "no cgroup reports CPU throttling, so no CPU quota limits this run"


def parse_statistics(statistics: bytes) -> tuple[int, int | None] | None:
    """Return how much CPU time a quota withheld and how much was used, in nanoseconds, from a cpu.stat.

    None if no quota is counted here; the use is None in version 1, which has it in another file.
    """
    words = statistics.split()
    numbers = dict(zip(words[::2], words[1::2], strict=False))
    if b"throttled_usec" in numbers:
        return int(numbers[b"throttled_usec"]) * 1000, int(numbers[b"usage_usec"]) * 1000
    return (int(numbers[b"throttled_time"]), None) if b"throttled_time" in numbers else None


class Group:
    """One group with a counted quota."""

    def __init__(self, folder: Path, accounts: Path | None) -> None:
        """Open its files; ``accounts`` is the group's folder of the controller cpuacct, in version 1."""
        self._file = os.open(folder / "cpu.stat", os.O_RDONLY | os.O_CLOEXEC)
        usage = accounts and accounts / "cpuacct.usage"
        self._usage = os.open(usage, os.O_RDONLY | os.O_CLOEXEC) if usage and usage.exists() else None
        self._quota = quota(folder) or 0.0
        self._last = self._count(time.monotonic_ns())

    def withheld_share(self, now_ns: int) -> float:
        """Return the share of the requested CPU time since the last call that the group did not get."""
        before, self._last = self._last, self._count(now_ns)
        withheld, used = (max(0, now - then) for now, then in zip(self._last, before, strict=True))
        return withheld / (withheld + used) if withheld else 0.0

    def close(self) -> None:
        """Close its files."""
        for file in filter(None, (self._file, self._usage)):
            os.close(file)

    def _count(self, now_ns: int) -> tuple[int, int]:
        """Return withheld and used time so far; if the use is unknown, the time that the quota grants."""
        withheld, used = parse_statistics(os.pread(self._file, 4096, 0)) or (0, None)
        if used is None and self._usage is not None:
            used = int(os.pread(self._usage, 64, 0))
        return withheld, int(self._quota * now_ns) if used is None else used


class Quotas:
    """The series ``throttled_share``: the share of the requested CPU time that a quota withheld.

    Withheld and used time are both summed over cores, so this is the share of time for which a runnable thread was
    stopped. Of several groups with a quota, the one that withheld most counts.
    """

    def __init__(self, journal: JournalWriter, found: list[Group]) -> None:
        self._groups = found
        self._series = journal.series("cgroup", "throttled_share")

    @classmethod
    def find(cls, journal: JournalWriter, root: Path) -> Quotas | None:
        """Return this process's group and those above it that count quotas."""
        folders, accounts = groups("cpu", root), groups("cpuacct", root)
        pairs = zip(
            folders, accounts if len(accounts) == len(folders) else [None] * len(folders), strict=True
        )
        found = [
            Group(folder, account)
            for folder, account in pairs
            if parse_statistics(text(folder / "cpu.stat").encode())
        ]
        return cls(journal, found) if found else None

    def read(self, now_ns: int) -> list[tuple[int, float]]:
        """Return the share since the last call."""
        return [(self._series, max(group.withheld_share(now_ns) for group in self._groups))]

    def close(self) -> None:
        """Close the files."""
        for group in self._groups:
            group.close()


class CgroupMonitor:
    """Writes the series of ``cgroup``, once a second: quotas are renewed ten times a second."""

    def __init__(
        self,
        journal: JournalWriter,
        quotas: Quotas | None,
        memory: GroupMemory | None,
        stalls: pressure.Pressure,
    ) -> None:
        self._journal, self._quotas, self._memory, self._stalls = journal, quotas, memory, stalls

    def quick(self, now_ns: int) -> None:
        """Do nothing: once a second is enough."""

    def full(self, now_ns: int) -> None:
        """Write the values of the last second."""
        values = self._stalls.read(now_ns)
        if self._quotas is not None:
            values += self._quotas.read(now_ns)
        if self._memory is not None:
            values += self._memory.read()
        self._journal.samples(now_ns, values)

    def close(self) -> None:
        """Close the files."""
        for part in (self._quotas, self._memory, self._stalls):
            if part is not None:
                part.close()


def watch(journal: JournalWriter, root: Path = Path("/")) -> CgroupMonitor | None:
    """Start to watch this process's group and those above it, or record why not."""
    folders = groups("memory", root)
    quotas, memory = Quotas.find(journal, root), GroupMemory.find(journal, folders)
    if quotas is None:
        what = "cgroup" if memory is None else "cgroup quota"
        journal.not_watched(what, NO_QUOTA)
        if memory is None:
            return None
    elif memory is None:
        journal.not_watched("cgroup memory", "no cgroup reports the memory of this run")
    stalls = pressure.of_group(journal, folders[0]) if folders else pressure.Pressure(lambda metric: 0, {})
    return CgroupMonitor(journal, quotas, memory, stalls)

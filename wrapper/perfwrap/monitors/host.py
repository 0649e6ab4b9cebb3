"""Watch the host as a whole: its cores, memory, swap and disks.

Processor times are taken straight from /proc/stat, ten times a second; what psutil reads costs some ten times
as much and changes slowly, so it is asked once a second. Processor times are counted in ticks of 10 ms: one
value of a tenth of a second is rough, their mean is exact.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfwrap import control_groups
from perfwrap.monitors.journal import JournalWriter

MANY_CORES = 32
"""On larger machines each core's share is written once a second only, to keep the journal small."""
ALL = b"cpu"
"""How /proc/stat calls the sum of all cores."""
Times = dict[bytes, tuple[int, int, int]]
"""Ticks of a core since boot: busy, waiting for I/O, all."""


class HostMonitor:
    """Writes the series of ``host`` and ``cpu/N``."""

    def __init__(self, journal: JournalWriter) -> None:
        self._journal = journal
        self._file = os.open("/proc/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._bytes = len(os.pread(self._file, 1 << 20, 0)) + 4096
        self._taken: list[tuple[int, bytes]] = []
        self._previous = self._previous_full = parse_processor_times(os.pread(self._file, self._bytes, 0))[0]
        self._each_core_quickly = len(self._previous) - 1 <= MANY_CORES
        self._cores: dict[bytes, int] = {}
        self._busy, self._waiting, self._runnable = (
            journal.series("host", metric) for metric in ("cpu_cores_busy", "iowait_cores", "runnable_tasks")
        )
        self._slow = SlowReadings.find(journal)

    def quick(self, now_ns: int) -> None:
        """Take the processor times as they are."""
        self._taken.append((now_ns, os.pread(self._file, self._bytes, 0)))

    def full(self, now_ns: int) -> None:
        """Write how busy the cores were from look to look, then memory, swap and disks."""
        taken, self._taken = self._taken, []
        for time_ns, text in taken:
            self._write(time_ns, *parse_processor_times(text))
        if not self._each_core_quickly:
            self._journal.samples(now_ns, self._core_values(self._previous_full, self._previous))
            self._previous_full = self._previous
        if self._slow is not None:
            self._journal.samples(now_ns, self._slow.read(now_ns))

    def close(self) -> None:
        """Let go of /proc/stat."""
        os.close(self._file)

    def _write(self, time_ns: int, times: Times, runnable: int) -> None:
        cores = len(times) - 1
        busy, waiting = _shares(self._previous[ALL], times[ALL])
        values = [(self._busy, busy * cores), (self._waiting, waiting * cores), (self._runnable, runnable)]
        if self._each_core_quickly:
            values += self._core_values(self._previous, times)
        self._previous = times
        self._journal.samples(time_ns, values)

    def _core_values(self, before: Times, after: Times) -> list[tuple[int, float]]:
        return [
            (self._core(name), _shares(before[name], times)[0])
            for name, times in after.items()
            if name != ALL and name in before
        ]

    def _core(self, name: bytes) -> int:
        if name not in self._cores:
            self._cores[name] = self._journal.series(f"cpu/{int(name[3:])}", "busy_share")
        return self._cores[name]


class SlowReadings:
    """What psutil reads: memory, swap, disks."""

    def __init__(
        self, journal: JournalWriter, psutil: Any, disks: Callable[[], tuple[int, int]] | None
    ) -> None:
        self._psutil, self._disks = psutil, disks
        self._memory, self._swap = (
            journal.series("host", metric) for metric in ("memory_available_bytes", "swap_used_bytes")
        )
        self._rates = [
            journal.series("host", metric)
            for metric in ("swap_in_bytes_per_s", "disk_read_bytes_per_s", "disk_write_bytes_per_s")
        ]
        self._previous: tuple[int, list[int]] | None = None

    @classmethod
    def find(cls, journal: JournalWriter) -> SlowReadings | None:
        """Return a reader of what this machine shows; what it does not becomes a line of coverage."""
        try:
            # Imported here because the cores are watched without it, too.
            import psutil
        except ImportError:
            journal.not_watched("memory, swap and disks", "psutil is not installed beside perfwrap")
            return None
        disks = whole_disks(psutil)
        if disks is None:
            journal.not_watched("disks", "this machine shows no disk counters")
        return cls(journal, psutil, disks)

    def read(self, now_ns: int) -> list[tuple[int, float]]:
        """Return the values of this moment, and the rates since the last one."""
        swap = self._psutil.swap_memory()
        totals = [int(swap.sin), *(self._disks() if self._disks is not None else ())]
        values = [
            (self._memory, float(self._psutil.virtual_memory().available)),
            (self._swap, float(swap.used)),
        ]
        if self._previous is not None and now_ns > self._previous[0]:
            seconds = (now_ns - self._previous[0]) / 1e9
            steps = zip(self._rates, self._previous[1], totals, strict=False)
            values += [(series, max(0, now - before) / seconds) for series, before, now in steps]
        self._previous = now_ns, totals
        return values


def whole_disks(psutil: Any, block: Path = Path("/sys/class/block")) -> Callable[[], tuple[int, int]] | None:
    """Return a function that gives bytes read and written by all disks; None where nothing counts them.

    Only disks with a device count, because partitions and mapped volumes count the same bytes again.
    """
    try:
        counters = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    except (OSError, NotImplementedError, psutil.Error):
        return None
    names = [name for name in counters if (block / name / "device").exists()]
    names = names or [name for name in counters if not (block / name / "partition").exists()]
    if not names:
        return None

    def read() -> tuple[int, int]:
        now = psutil.disk_io_counters(perdisk=True, nowrap=False)
        found = [now[name] for name in names if name in now]
        return sum(disk.read_bytes for disk in found), sum(disk.write_bytes for disk in found)

    return read


def watch(journal: JournalWriter) -> HostMonitor:
    """Start to watch the host, and write down what it is."""
    for key, value in facts().items():
        journal.fact(key, value)
    return HostMonitor(journal)


def facts(root: Path = Path("/")) -> dict[str, str]:
    """Return what the host is; a fact that cannot be known here is absent."""
    usable: float = len(os.sched_getaffinity(0))
    found = {"cores_online": str(os.cpu_count()), "cores_affinity": str(int(usable))}
    quota = control_groups.cpu_quota(control_groups.groups("cpu", root))
    if quota is not None:
        found["cpu_quota_cores"] = f"{quota:g}"
        usable = min(usable, quota)
    found["cores_usable"] = f"{usable:g}"
    limit = control_groups.memory_limit(control_groups.groups("memory", root))
    if limit is not None:
        found["memory_limit_bytes"] = str(limit)
    found["memory_total_bytes"] = str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    found["kernel"] = os.uname().release
    return found | _processor_model(root) | _shared_memory(root)


def parse_processor_times(text: bytes) -> tuple[Times, int]:
    """Return the ticks by core and how many tasks are runnable, from the text of /proc/stat.

    Time that a hypervisor took away counts in the total only.
    """
    times, runnable = {}, 0
    for line in text.splitlines():
        if line.startswith(b"cpu"):
            name, *words = line.split()
            user, nice, system, idle, waiting, interrupt, soft, stolen = map(int, words[:8])
            busy = user + nice + system + interrupt + soft
            times[name] = busy, waiting, busy + idle + waiting + stolen
        elif line.startswith(b"procs_running"):
            runnable = int(line.split()[1])
    return times, runnable


def _shares(before: tuple[int, int, int], after: tuple[int, int, int]) -> tuple[float, float]:
    """Return which part of the time was busy and which waited for I/O."""
    total = max(1, after[2] - before[2])
    # The kernel's counters can step back a little.
    busy, waiting = (min(1.0, max(0.0, (after[i] - before[i]) / total)) for i in (0, 1))
    return busy, waiting


def _processor_model(root: Path) -> dict[str, str]:
    try:
        lines = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"cpu_model": names[0]} if names else {}


def _shared_memory(root: Path) -> dict[str, str]:
    try:
        status = os.statvfs(root / "dev/shm")
    except OSError:
        return {}
    return {
        "shm_total_bytes": str(status.f_blocks * status.f_frsize),
        "shm_free_bytes": str(status.f_bavail * status.f_frsize),
    }

"""Watch the host as a whole: its cores, run queue and pressure, memory, disks and network.

CPU times are read directly from /proc/stat, ten times a second; the values of psutil cost about ten times as much and
change slowly, so they are read once a second. CPU times are counted in ticks of 10 ms: one value of a tenth of a second
is rough, their mean is exact.
"""

from __future__ import annotations

import os

from perfwrap.monitors.host import host_facts, pressure
from perfwrap.monitors.host.slow_readings import SlowReadings
from perfwrap.monitors.monitor_journal import JournalWriter

MANY_CORES = 32
"""On larger machines each core's share is written once a second only, to keep the journal small."""
ALL = b"cpu"
"""The name of the sum of all cores in /proc/stat."""
Times = dict[bytes, tuple[int, int, int, int]]
"""Ticks of a core since boot: busy, waiting for I/O, stolen by a hypervisor, all."""


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
        self._series = [
            journal.series("host", metric)
            for metric in ("cpu_cores_busy", "iowait_cores", "stolen_cores", "runnable_tasks")
        ]
        self._blocked = journal.series("host", "blocked_tasks")
        self._pressure = pressure.of_host(journal)
        self._slow = SlowReadings.find(journal)

    def quick(self, now_ns: int) -> None:
        """Sample the CPU times."""
        self._taken.append((now_ns, os.pread(self._file, self._bytes, 0)))

    def full(self, now_ns: int) -> None:
        """Write how busy the cores were between samples, then pressure, memory, disks and network."""
        taken, self._taken = self._taken, []
        for time_ns, text in taken:
            self._write(time_ns, *parse_processor_times(text))
        if taken:
            self._journal.samples(taken[-1][0], [(self._blocked, parse_blocked(taken[-1][1]))])
        self._journal.samples(now_ns, self._pressure.read(now_ns))
        if not self._each_core_quickly:
            self._journal.samples(now_ns, self._core_values(self._previous_full, self._previous))
            self._previous_full = self._previous
        if self._slow is not None:
            self._journal.samples(now_ns, self._slow.read(now_ns))

    def close(self) -> None:
        """Close the files."""
        os.close(self._file)
        self._pressure.close()

    def _write(self, time_ns: int, times: Times, runnable: int) -> None:
        cores = len(times) - 1
        shares = _shares(self._previous[ALL], times[ALL])
        values = [
            *zip(self._series, (share * cores for share in shares), strict=False),
            (self._series[-1], float(runnable)),
        ]
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


def watch(journal: JournalWriter) -> HostMonitor:
    """Start to watch the host, and record its facts."""
    for key, value in host_facts.facts().items():
        journal.fact(key, value)
    return HostMonitor(journal)


def parse_processor_times(text: bytes) -> tuple[Times, int]:
    """Return the ticks by core and the number of runnable tasks, from the text of /proc/stat."""
    times, runnable = {}, 0
    for line in text.splitlines():
        if line.startswith(b"cpu"):
            name, *words = line.split()
            user, nice, system, idle, waiting, interrupt, soft, stolen = map(int, words[:8])
            busy = user + nice + system + interrupt + soft
            times[name] = busy, waiting, stolen, busy + idle + waiting + stolen
        elif line.startswith(b"procs_running"):
            runnable = int(line.split()[1])
    return times, runnable


def parse_blocked(text: bytes) -> int:
    """Return the number of tasks that wait for a disk or a network file system, from the text of /proc/stat."""
    _, _, behind = text.partition(b"\nprocs_blocked ")
    return int(behind.split(None, 1)[0]) if behind else 0


def _shares(before: tuple[int, ...], after: tuple[int, ...]) -> list[float]:
    """Return the shares of time that were busy, waiting for I/O, and stolen by a hypervisor."""
    total = max(1, after[3] - before[3])
    # The kernel's counters can step back a little.
    return [min(1.0, max(0.0, (after[place] - before[place]) / total)) for place in range(3)]

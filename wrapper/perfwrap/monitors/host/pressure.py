"""Read pressure stall information: the share of time in which tasks waited for CPU, memory or disk.

Format: https://docs.kernel.org/accounting/psi.html. The kernel sums the microseconds in which *some* task
waited and those in which *all* did; the differences of these sums are exact, unlike its averages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from perfwrap.monitors.monitor_journal import JournalWriter

RESOURCES = ("cpu", "memory", "io")
MEANINGS = {b"some": "pressure_share", b"full": "stall_share"}
"""The share of time in which at least one task waited, and the share in which all tasks waited."""
LONGEST = 512


class Pressure:
    """The series ``cpu_pressure_share``, ``io_stall_share`` and so on, of a host or a control group."""

    def __init__(self, series: Callable[[str], int], files: Mapping[str, Path]) -> None:
        """Open the available files; ``series`` makes a series for the name of a metric."""
        self._series = series
        self._numbers: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self._previous: dict[str, tuple[int, int]] = {}
        for resource, path in files.items():
            try:
                self._files[resource] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue  # Not built in, or disabled at boot; the caller reports it.

    def __bool__(self) -> bool:
        """Return whether any value is available."""
        return bool(self._files)

    def read(self, now_ns: int) -> list[tuple[int, float]]:
        """Return each share since the last call; none the first time."""
        values = []
        for resource, file in self._files.items():
            for line in os.pread(file, LONGEST, 0).splitlines():
                meaning, *_, total = line.split()
                metric = f"{resource}_{MEANINGS[meaning]}"
                waited_ns = 1000 * int(total.removeprefix(b"total="))
                before = self._previous.get(metric)
                self._previous[metric] = now_ns, waited_ns
                # "All tasks wait for a CPU" is undefined for a whole machine, and reads 0.
                if before is not None and now_ns > before[0] and waited_ns:
                    share = (waited_ns - before[1]) / (now_ns - before[0])
                    values.append((self._number(metric), min(1.0, max(0.0, share))))
        return values

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)

    def _number(self, metric: str) -> int:
        if metric not in self._numbers:
            self._numbers[metric] = self._series(metric)
        return self._numbers[metric]


def of_host(journal: JournalWriter, root: Path = Path("/")) -> Pressure:
    """Return the pressure of the whole machine, or record why there is none."""
    files = {resource: root / "proc/pressure" / resource for resource in RESOURCES}
    pressure = Pressure(lambda metric: journal.series("host", metric), files)
    if not pressure:
        journal.not_watched(
            "pressure",
            "this kernel has no pressure stall information (needs Linux 4.20 or later, with psi=1)",
        )
    return pressure


def of_group(journal: JournalWriter, folder: Path) -> Pressure:
    """Return the pressure of a control group of version 2; of version 1 there is none."""
    files = {resource: folder / f"{resource}.pressure" for resource in RESOURCES}
    return Pressure(lambda metric: journal.series("cgroup", metric), files)

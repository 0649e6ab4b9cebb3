"""Read the energy that the processors and their memory have used, from the kernel's powercap files (RAPL).

Intel's and AMD's processors count it, for the whole machine: other programs are included. Since 2020 the kernel lets
only root read the counters, because they reveal what runs. They wrap around after minutes to hours.
"""

from __future__ import annotations

import os
from pathlib import Path

from perfwrap.monitors.monitor_journal import JournalWriter

ROOT = Path("/sys/class/powercap")
MICROJOULES = 1_000_000
WHAT = "cpu energy"
"""The name in the coverage."""
PACKAGE, MEMORY = "cpu_energy_joules", "dram_energy_joules"


class Counter:
    """One counter, and what it has counted since it was opened."""

    def __init__(self, folder: Path, metric: str) -> None:
        """Open the counter; OSError or ValueError if it cannot be read."""
        self.metric = metric
        self._range = int((folder / "max_energy_range_uj").read_text())
        self._file = os.open(folder / "energy_uj", os.O_RDONLY | os.O_CLOEXEC)
        self._last = self._read()
        self.joules = 0.0

    def count(self) -> None:
        """Add what was used since the last call."""
        now = self._read()
        used = now - self._last
        self.joules += (used if used >= 0 else used + self._range) / MICROJOULES
        self._last = now

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _read(self) -> int:
        return int(os.pread(self._file, 32, 0))


class EnergyMonitor:
    """Writes the series ``host cpu_energy_joules`` and ``host dram_energy_joules``, sums over all sockets."""

    def __init__(self, journal: JournalWriter, counters: list[Counter]) -> None:
        self._journal, self._counters = journal, counters
        self._series = {counter.metric: journal.series("host", counter.metric) for counter in counters}

    def quick(self, now_ns: int) -> None:
        """Do nothing: once a second is enough."""

    def full(self, now_ns: int) -> None:
        """Write the joules since the beginning."""
        for counter in self._counters:
            counter.count()
        sums = {
            metric: sum(counter.joules for counter in self._counters if counter.metric == metric)
            for metric in self._series
        }
        self._journal.samples(now_ns, [(self._series[metric], joules) for metric, joules in sums.items()])
        self._journal.flush()

    def close(self) -> None:
        """Close the files."""
        for counter in self._counters:
            counter.close()


def watch(journal: JournalWriter, root: Path = ROOT) -> EnergyMonitor | None:
    """Start to watch the counters that may be read, or record why there are none."""
    counters, refused = [], ""
    for folder in sorted(root.glob("intel-rapl:*")) if root.is_dir() else ():
        try:
            name = (folder / "name").read_text().strip()
            metric = PACKAGE if name.startswith("package") else MEMORY if name == "dram" else ""
            if metric:
                counters.append(Counter(folder, metric))
        except PermissionError:
            refused = "only root may read /sys/class/powercap/intel-rapl:*/energy_uj"
        except (OSError, ValueError) as error:
            refused = f"{folder.name}: {error}"
    if counters:
        return EnergyMonitor(journal, counters)
    journal.not_watched(WHAT, refused or "this machine has no energy counters (powercap)")
    return None

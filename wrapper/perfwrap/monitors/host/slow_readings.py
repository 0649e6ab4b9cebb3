"""The values of a host that psutil reads once a second: memory, page cache, swap, disks, network; and /dev/shm.

Totals become rates. A counter that decreases (a recreated interface) counts as no traffic.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfwrap.monitors.monitor_journal import JournalWriter

Totals = dict[str, int]
"""Sums since boot, by the name of the series of their growth."""
DISKS = ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
NETWORK = ("network_receive_bytes_per_s", "network_send_bytes_per_s")
BUSY = "busy_share"
SHARED_MEMORY = Path("/dev/shm")  # nosec B108 # only its size is read


class SlowReadings:
    """Writes the series of ``host`` that need psutil, and ``disk/NAME busy_share``."""

    def __init__(self, journal: JournalWriter, psutil: Any, totals: list[Callable[[], Totals]]) -> None:
        """``totals`` are functions that return the counts so far."""
        self._journal, self._psutil, self._totals = journal, psutil, totals
        self._series: dict[str, int] = {}
        self._previous: tuple[int, Totals] | None = None
        self._has_shared_memory = SHARED_MEMORY.is_dir()
        # This is the most expensive call.
        self._has_swap = psutil.swap_memory().total > 0

    @classmethod
    def find(cls, journal: JournalWriter) -> SlowReadings | None:
        """Return a reader of the available values; missing ones are noted in the coverage."""
        try:
            # Imported here because the cores are watched even without it.
            import psutil
        except ImportError:
            journal.not_watched("memory, swap and disks", "psutil is not installed in perfwrap's environment")
            return None
        found = []
        for what, totals in (("disks", whole_disks(psutil)), ("network", networks(psutil))):
            if totals is None:
                journal.not_watched(what, f"this machine has no {what.removesuffix('s')} counters")
            else:
                found.append(totals)
        return cls(journal, psutil, found)

    def read(self, now_ns: int) -> list[tuple[int, float]]:
        """Return the current values, and the rates since the last call."""
        memory = self._psutil.virtual_memory()
        values = {
            "memory_available_bytes": float(memory.available),
            "page_cache_bytes": float(max(0, memory.cached + memory.buffers - memory.shared)),
            "swap_used_bytes": 0.0,
        }
        totals: Totals = {}
        if self._has_swap:
            swap = self._psutil.swap_memory()
            values["swap_used_bytes"] = float(swap.used)
            totals = {"swap_in_bytes_per_s": int(swap.sin), "swap_out_bytes_per_s": int(swap.sout)}
        if self._has_shared_memory:
            status = os.statvfs(SHARED_MEMORY)
            values["shm_used_bytes"] = float((status.f_blocks - status.f_bfree) * status.f_frsize)
        for read in self._totals:
            totals |= read()
        values |= self._rates(now_ns, totals)
        return [(self._number(name), value) for name, value in values.items()]

    def _rates(self, now_ns: int, totals: Totals) -> dict[str, float]:
        before, self._previous = self._previous, (now_ns, totals)
        if before is None or now_ns <= before[0]:
            return {}
        seconds = (now_ns - before[0]) / 1e9
        rates = {
            name: max(0, now - before[1][name]) / seconds for name, now in totals.items() if name in before[1]
        }
        # Milliseconds in which a disk was busy.
        return {name: min(1.0, rate / 1000) if name.endswith(BUSY) else rate for name, rate in rates.items()}

    def _number(self, name: str) -> int:
        """Return a series; a name with a blank is about another entity than the host."""
        if name not in self._series:
            entity, _, metric = name.rpartition(" ")
            self._series[name] = self._journal.series(entity or "host", metric)
        return self._series[name]


def whole_disks(psutil: Any, block: Path = Path("/sys/class/block")) -> Callable[[], Totals] | None:
    """Return a function that returns the bytes that all disks read and wrote, and how long each was busy.

    None if they are not counted. Only disks with a device, because partitions and mapped volumes count the same bytes
    again.
    """
    try:
        counters = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    except (OSError, NotImplementedError, psutil.Error):
        return None
    names = [name for name in counters if (block / name / "device").exists()]
    names = names or [name for name in counters if not (block / name / "partition").exists()]
    if not names:
        return None

    def read() -> Totals:
        now = psutil.disk_io_counters(perdisk=True, nowrap=False)
        found = {name: now[name] for name in names if name in now}
        sums = (
            sum(disk.read_bytes for disk in found.values()),
            sum(disk.write_bytes for disk in found.values()),
        )
        busy = {
            f"disk/{name} {BUSY}": disk.busy_time
            for name, disk in found.items()
            if hasattr(disk, "busy_time")
        }
        return dict(zip(DISKS, sums, strict=True)) | busy

    return read


def networks(psutil: Any, interfaces: Path = Path("/sys/class/net")) -> Callable[[], Totals] | None:
    """Return a function that returns the bytes that all network interfaces received and sent.

    None if they are not counted. Only those with a device, because bridges, bonds and container interfaces count the
    same bytes again; inside a container, where none has a device, all except loopback.
    """
    try:
        counters = psutil.net_io_counters(pernic=True, nowrap=False) or {}
    except (OSError, NotImplementedError, psutil.Error):
        return None
    names = [name for name in counters if (interfaces / name / "device").exists()]
    names = names or [name for name in counters if name != "lo"]
    if not names:
        return None

    def read() -> Totals:
        now = psutil.net_io_counters(pernic=True, nowrap=False)
        found = [now[name] for name in names if name in now]
        sums = sum(nic.bytes_recv for nic in found), sum(nic.bytes_sent for nic in found)
        return dict(zip(NETWORK, sums, strict=True))

    return read

"""What psutil reads of a host once a second: memory, page cache, swap, disks, network; and /dev/shm.

Totals become rates. A counter that steps back (an interface that was made anew) is no traffic.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfwrap.monitors.journal import JournalWriter

Totals = dict[str, int]
"""Sums since boot, by the name of the series that their growth makes."""
DISKS = ("disk_read_bytes_per_s", "disk_write_bytes_per_s")
NETWORK = ("network_receive_bytes_per_s", "network_send_bytes_per_s")
BUSY = "busy_share"
SHARED_MEMORY = Path("/dev/shm")  # nosec B108 # only its size is asked for


class SlowReadings:
    """Writes the series of ``host`` that need psutil, and ``disk/NAME busy_share``."""

    def __init__(self, journal: JournalWriter, psutil: Any, totals: list[Callable[[], Totals]]) -> None:
        """``totals`` are functions that give what has been counted so far."""
        self._journal, self._psutil, self._totals = journal, psutil, totals
        self._series: dict[str, int] = {}
        self._previous: tuple[int, Totals] | None = None
        self._has_shared_memory = SHARED_MEMORY.is_dir()
        # Asking for it is the dearest of all.
        self._has_swap = psutil.swap_memory().total > 0

    @classmethod
    def find(cls, journal: JournalWriter) -> SlowReadings | None:
        """Return a reader of what this machine shows; what it does not becomes a line of coverage."""
        try:
            # Imported here because the cores are watched without it, too.
            import psutil
        except ImportError:
            journal.not_watched("memory, swap and disks", "psutil is not installed beside perfwrap")
            return None
        found = []
        for what, totals in (("disks", whole_disks(psutil)), ("network", networks(psutil))):
            if totals is None:
                journal.not_watched(what, f"this machine shows no {what.removesuffix('s')} counters")
            else:
                found.append(totals)
        return cls(journal, psutil, found)

    def read(self, now_ns: int) -> list[tuple[int, float]]:
        """Return the values of this moment, and the rates since the last one."""
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
        # Milliseconds in which a disk had something to do.
        return {name: min(1.0, rate / 1000) if name.endswith(BUSY) else rate for name, rate in rates.items()}

    def _number(self, name: str) -> int:
        """Return a series; a name with a blank is about another thing than the host."""
        if name not in self._series:
            entity, _, metric = name.rpartition(" ")
            self._series[name] = self._journal.series(entity or "host", metric)
        return self._series[name]


def whole_disks(psutil: Any, block: Path = Path("/sys/class/block")) -> Callable[[], Totals] | None:
    """Return a function that counts what disks read and wrote together, and how long each was busy.

    None where nothing counts them. Only disks with a device, because partitions and mapped volumes count the
    same bytes again.
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
    """Return a function that counts what the network interfaces received and sent together.

    None where nothing counts them. Only those with a device, because bridges, bonds and containers' ends count
    the same bytes again; inside of a container, where none has a device, all but the loopback.
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

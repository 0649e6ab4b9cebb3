"""The memory of all processes of a run together. A page that several of them share counts once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

PROPORTIONAL = re.compile(r"^Pss: +(\d+) kB", re.MULTILINE)
"""A process's own memory, and of what it shares with n processes the n-th part (man proc_pid_smaps)."""


class TreeMemory:
    """Looks at the memory of processes again and again, and keeps the largest sum."""

    def __init__(self) -> None:
        self.peak_bytes: int | None = None

    def look(self, processes: Iterable[int]) -> None:
        """Add up the memory of the processes with these numbers; those that ended or are not ours count as nothing."""
        found = [size for pid in processes if (size := _size(pid)) is not None]
        if found:
            self.peak_bytes = max(self.peak_bytes or 0, sum(found))


def _size(pid: int) -> int | None:
    """Return the proportional memory of a process in bytes; None if it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    found = PROPORTIONAL.search(text)
    return int(found[1]) * 1024 if found else None

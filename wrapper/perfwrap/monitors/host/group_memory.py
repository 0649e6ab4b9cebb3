"""Watch the memory of a control group: its use, its limit, and the processes that the kernel killed.

Which files: https://docs.kernel.org/admin-guide/cgroup-v2.html#memory (version 2) and
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html (version 1).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from perfwrap import control_groups
from perfwrap.monitors.monitor_journal import JournalWriter

USAGE = ("memory.current", "memory.usage_in_bytes")
STATISTICS_LOOKS = 10
"""For ``memory.stat`` the kernel sums over all cores and groups below: expensive on a large machine."""


class GroupMemory:
    """Writes ``memory_used_bytes``, ``memory_file_bytes`` and the mark ``oom_kill``."""

    def __init__(self, journal: JournalWriter, folder: Path, folders: list[Path]) -> None:
        """Watch the use of ``folder`` and the kills of the innermost of ``folders``."""
        self._journal, self._folder, self._folders = journal, folder, folders
        name = next(name for name in USAGE if (folder / name).exists())
        self._usage = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC)
        self._used, self._files = (
            journal.series("cgroup", metric) for metric in ("memory_used_bytes", "memory_file_bytes")
        )
        self._kills = control_groups.memory_kills(folders)
        self._looks = 0

    @classmethod
    def find(cls, journal: JournalWriter, folders: list[Path]) -> GroupMemory | None:
        """Return the group with the lowest limit, or the innermost without a limit; None without any."""
        tightest = control_groups.tightest_memory(folders)
        candidates = [tightest[0]] if tightest is not None else folders
        for folder in candidates:
            if any((folder / name).exists() for name in USAGE):
                return cls(journal, folder, folders)
        return None

    def read(self) -> list[tuple[int, float]]:
        """Return the current values; a kill since the last call becomes a mark."""
        values = [(self._used, float(os.pread(self._usage, 64, 0)))]
        if self._looks % STATISTICS_LOOKS == 0:
            found = re.search(r"^(?:total_)?inactive_file (\d+)$", self._statistics(), re.MULTILINE)
            values += [(self._files, float(found[1]))] if found else []
        self._looks += 1
        self._tell_kills()
        return values

    def close(self) -> None:
        """Close the file."""
        os.close(self._usage)

    def _statistics(self) -> str:
        """Return memory.stat; in version 1 only the values that include the groups below."""
        text = control_groups.text(self._folder / "memory.stat")
        return text[text.find("total_inactive_file") :] if "total_inactive_file" in text else text

    def _tell_kills(self) -> None:
        kills, before = control_groups.memory_kills(self._folders), self._kills
        self._kills = kills
        if kills is not None and before is not None and kills > before:
            used, limit = (
                os.pread(self._usage, 64, 0).decode().strip(),
                control_groups.memory_limit(self._folders),
            )
            self._journal.mark(
                "oom_kill", f"{kills - before} killed; {used} bytes used, limit {limit or 'none'}"
            )

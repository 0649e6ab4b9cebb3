"""Follows the start logs of a run: reads only the lines that are new, keeps the last ones."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from perfwrap.sources.starts import Start, parse_starts

MOST_STARTS = 2000
"""So many processes are more than a screen can tell of."""
MOST_BYTES = 1 << 20
"""So much of a log is read at once; of a longer one that is met late the beginning is left out."""


class StartsTail:
    """The last start records of all hosts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.records: deque[Start] = deque(maxlen=MOST_STARTS)

    def refresh(self) -> bool:
        """Read the new lines that are whole; say whether there were any."""
        before = sum(self._read.values())
        for path in sorted(self._folder.glob("*.log")):
            try:
                with path.open("rb") as file:
                    begin = max(self._read.get(path, 0), file.seek(0, os.SEEK_END) - MOST_BYTES)
                    file.seek(begin)
                    whole = file.read(MOST_BYTES).rpartition(b"\n")[0]
            except OSError:
                continue  # Deleted meanwhile: the run's manifest tells.
            if whole:
                self.records.extend(parse_starts(path.stem, whole.decode("utf-8", "replace").split("\n")))
                self._read[path] = begin + len(whole) + 1
        return sum(self._read.values()) != before

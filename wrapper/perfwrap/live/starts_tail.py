"""Follows the start logs of a run: reads only new lines, keeps the last ones."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from perfwrap.sources.journals.starts import Start, parse_starts

MAX_STARTS = 2000
"""More processes than a screen can show."""
MAX_BYTES = 1 << 20
"""Bytes of a log that are read at once; the beginning of a longer one is skipped."""


class StartsTail:
    """The last start records of all hosts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self.records: deque[Start] = deque(maxlen=MAX_STARTS)

    def refresh(self) -> bool:
        """Read the new complete lines; return whether there were any."""
        before = sum(self._read.values())
        for path in sorted(self._folder.glob("*.log")):
            try:
                with path.open("rb") as file:
                    begin = max(self._read.get(path, 0), file.seek(0, os.SEEK_END) - MAX_BYTES)
                    file.seek(begin)
                    whole = file.read(MAX_BYTES).rpartition(b"\n")[0]
            except OSError:
                continue  # Deleted meanwhile: the run's manifest shows that.
            if whole:
                self.records.extend(parse_starts(path.stem, whole.decode("utf-8", "replace").split("\n")))
                self._read[path] = begin + len(whole) + 1
        return sum(self._read.values()) != before

"""Reads logs of a run folder line by line; in a folder from somebody else, they may have any size."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from perfwrap.private_files import open_plain
from perfwrap.timeline.builder import TimelineBuilder

LONGEST_LINE = 1 << 16
"""Bytes; perfwrap writes no longer lines."""


class LogLines:
    """The lines of several logs with a common size limit; skipped lines cause one warning for each file."""

    def __init__(
        self, builder: TimelineBuilder, most_bytes: int, most_lines: int, longest: int = LONGEST_LINE
    ) -> None:
        self._builder, self._longest = builder, longest
        self._bytes, self._lines = most_bytes, most_lines

    def of(self, path: Path) -> Iterator[str]:
        """Yield the lines of a log, except too long ones; none if the log cannot be read."""
        name = f"{path.parent.name}/{path.name}"
        too_long = 0
        try:
            with open_plain(path) as file:
                whole = True
                while line := file.readline(self._longest):
                    self._bytes -= len(line)
                    begins, whole = whole, line.endswith(b"\n")
                    if self._bytes < 0 or self._lines <= 0:
                        self._builder.warn(f"{name} is too long: only its beginning was read.")
                        break
                    if begins and (whole or len(line) < self._longest):
                        self._lines -= 1
                        yield line.decode("utf-8", "replace").rstrip("\r\n")
                    else:
                        too_long += begins
        except OSError as error:
            self._builder.warn(f"{name} cannot be read ({error.strerror or error}); it was skipped.")
        if too_long:
            self._builder.warn(f"{too_long} lines of {name} are too long; they were skipped.")

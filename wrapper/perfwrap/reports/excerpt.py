"""The lines of the user's program that a finding names, as they stand in the file now."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from perfwrap.rules.model import Location

MOST_LINES = 5
"""Lines shown of a longer stretch; the rest is told by a count."""

MOST_BYTES = 4 << 20
"""No program file is larger; what is, is not read."""


@dataclass(frozen=True)
class Excerpt:
    """Numbered lines; ``left_out`` more belong to the stretch. ``changed``: the file is newer than the
    run."""

    lines: tuple[tuple[int, str], ...]
    left_out: int = 0
    changed: bool = False


def read_excerpt(location: Location, directory: str, run_end_ns: int | None) -> Excerpt | None:
    """Return the lines that the location names, None when the file cannot be read or is shorter.

    ``directory`` is what a relative path is relative to, ``run_end_ns`` the wall clock at the end of the run.
    """
    path = Path(directory, location.file)
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return None
        text = path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):  # ValueError: a null byte in the name.
        return None
    last = max(location.line, location.until_line or 0)
    wanted = text.splitlines()[max(0, location.line - 1) : last]
    numbered = [(location.line + offset, line) for offset, line in enumerate(wanted)]
    if not numbered:
        return None
    kept = numbered[:MOST_LINES]
    changed = run_end_ns is not None and found.st_mtime_ns > run_end_ns
    return Excerpt(tuple(_dedented(kept)), len(numbered) - len(kept), changed)


def _dedented(lines: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the lines without the indentation that they share."""
    expanded = [(number, line.expandtabs(4).rstrip()) for number, line in lines]
    margin = min((len(line) - len(line.lstrip()) for _, line in expanded if line), default=0)
    return [(number, line[margin:]) for number, line in expanded]

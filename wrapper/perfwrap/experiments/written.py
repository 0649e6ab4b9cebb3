"""Files that the program wrote into its working folder during a trial.

perfwrap suppresses ``torch.save``. It cannot suppress files that the program or other libraries open themselves: these
are found by comparing the folder before and after, and reported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from perfwrap.run_folder import OLD_RUNS, RUNS

MAX_FILES = 50_000
"""A folder with more files, such as a data set, takes too long to list; then changes are unknown."""

SKIPPED = {".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", RUNS, OLD_RUNS}
"""Folders to which no training writes results."""

Files = Mapping[str, tuple[int, int]]
"""Modification time and size of each file, by its path below the folder."""


class Written(Struct, frozen=True):
    """What is different after the runs; ``unknown`` if the folder was too large."""

    changed: tuple[str, ...] = ()
    unknown: bool = False


def look(folder: Path, leave_out: Path) -> Files | None:
    """Return the files below a folder, without those of perfwrap in ``leave_out``; None if there are too many."""
    found: dict[str, tuple[int, int]] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED and Path(place, name) != leave_out]
        for name in files:
            path = Path(place, name)
            try:
                status = path.lstat()
            except OSError:
                continue
            found[str(path.relative_to(folder))] = (status.st_mtime_ns, status.st_size)
        if len(found) > MAX_FILES:
            return None
    return found


def compare(before: Files | None, after: Files | None) -> Written:
    """Return what was written, changed or removed in between."""
    if before is None or after is None:
        return Written(unknown=True)
    names = before.keys() | after.keys()
    return Written(tuple(sorted(name for name in names if before.get(name) != after.get(name))))

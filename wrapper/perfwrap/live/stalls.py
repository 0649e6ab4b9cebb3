"""Whether a run hangs at present, by the files that the monitors write while it does."""

from __future__ import annotations

import json
from pathlib import Path

from perfwrap.private_files import read_plain

MOST_BYTES = 64 << 20
"""Of what is told of one stall: the stacks of a few processes."""


def current_stall(folder: Path) -> str | None:
    """Return in one sentence what hangs, and where its stacks are; None where nothing does.

    A file that cannot be read tells nothing: it may be of a newer perfwrap.
    """
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            told = json.loads(read_plain(path, MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(told, dict) and told.get("ended") is None and told.get("sentence"):
            return f"{told['sentence']}; stacks: {path.parent.name}/{path.name}"
    return None

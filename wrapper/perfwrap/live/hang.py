"""Whether a run hangs now, according to the files that the monitors write while it does."""

from __future__ import annotations

import json
from pathlib import Path

from perfwrap.private_files import read_plain

MAX_BYTES = 64 << 20
"""Maximum size of the description of a stall: the stacks of a few processes."""


def current_stall(folder: Path) -> str | None:
    """Return the stall in one sentence, with the file of its stacks; None without a stall.

    A file that cannot be read is ignored: a newer perfwrap may have written it.
    """
    for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            found = json.loads(read_plain(path, MAX_BYTES))
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(found, dict) and found.get("ended") is None and found.get("sentence"):
            return f"{found['sentence']}; stacks: {path.parent.name}/{path.name}"
    return None

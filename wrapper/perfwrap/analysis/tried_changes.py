"""What trials (`perfwrap try`) of the same command measured, from the files beside a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from perfwrap.analysis.run_names import TRY
from perfwrap.private_files import read_plain

MAX_BYTES = 16 << 20


def find_tried(folder: Path, run: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return the ratio, and the ends of its interval, of each change that was measured; the last trial counts.

    Trials are looked for beside the run, and around it if the run is one of a trial. Files that cannot be read are
    left out.
    """
    found: dict[str, list[float]] = {}
    for path in sorted(_trials(folder.absolute()), key=lambda path: path.parent.name):
        document = _read(path)
        if run.get("command") and document.get("command") == run["command"]:
            found.update(_ratios(document))
    return found


def _trials(folder: Path) -> Iterator[Path]:
    """Yield the files of the trials near a run."""
    around = folder.parent.parent / TRY
    try:
        yield from ([around] if around.is_file() else folder.parent.glob(f"*/{TRY}"))
    except OSError:
        return


def _read(path: Path) -> Mapping[str, Any]:
    """Return a document; empty if it is none."""
    try:
        document = json.loads(read_plain(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, Mapping) else {}


def _ratios(document: Mapping[str, Any]) -> Iterator[tuple[str, list[float]]]:
    """Yield the changes that were measured."""
    rows = document.get("variants")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping) and row.get("status") == "measured":
            values = [row.get(key) for key in ("ratio", "low", "high")]
            if all(isinstance(value, int | float) for value in values):
                yield str(row.get("name")), [float(value) for value in values if value is not None]

"""The file that hands edited source files to ``perfwrap run``: JSON, with contents in base64."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from pathlib import Path

from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import EditedFile
from perfwrap.private_files import replace_text


def write(path: Path, files: Iterable[EditedFile]) -> None:
    """Write edited files for ``read``; OSError if that is not possible."""
    entries = [
        {
            "path": str(file.path),
            "before": b64encode(file.before).decode("ascii"),
            "after": b64encode(file.after).decode("ascii"),
        }
        for file in files
    ]
    replace_text(path, json.dumps(entries))


def read(path: Path) -> tuple[EditedFile, ...]:
    """Return the files; PerfwrapError if that is not such a file."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return tuple(
            EditedFile(Path(one["path"]), b64decode(one["before"]), b64decode(one["after"]))
            for one in entries
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PerfwrapError(
            f"{path} has no edited files: {error}", "perfwrap fix makes this file; it is not meant for users."
        ) from error

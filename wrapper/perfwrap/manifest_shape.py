"""The valid content of ``run.json``; ``launch/manifest.py`` explains each field.

Fields that are missing, null or unknown are accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfwrap.shapes import Shape, amount, fields, listed, number, text

MOMENT = fields(needed=True, monotonic_ns=number, wall_ns=number)
MEMORY = fields(processes=number, scope=text, limit_bytes=number, pids=listed(number))
SHAPES: Mapping[str, Shape] = {
    **dict.fromkeys(("name", "cwd"), text),
    **dict.fromkeys(("command", "tags", "warnings"), listed(text)),
    **dict.fromkeys(("start", "end"), MOMENT),
    "clock": listed(MOMENT),
    "exit": fields(code=number, signal=number, oom_kill=MEMORY),
    "attached": fields(pid=number),
    "host": fields(name=text, gpus=listed(text)),
    "processor_seconds": fields(command=amount, monitors=amount),
    "part": fields(restart=number),
    "imported": listed(fields(file=text, format=text)),
    **dict.fromkeys(("versions", "options", "environment"), fields()),
}


def first_fault(manifest: Mapping[str, Any]) -> str | None:
    """Return the first invalid field; None if all are valid."""
    return next(
        (
            name
            for name, shape in SHAPES.items()
            if manifest.get(name) is not None and not shape(manifest[name])
        ),
        None,
    )

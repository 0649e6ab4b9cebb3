"""What may stand in ``run.json``; what each field means is said in ``launch/manifest.py``.

Fields that are missing, null or unknown do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfwrap.shapes import Shape, fields, listed, number, text

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
    "part": fields(restart=number),
    "imported": listed(fields(file=text, format=text)),
    **dict.fromkeys(("versions", "options", "environment"), fields()),
}


def first_fault(manifest: Mapping[str, Any]) -> str | None:
    """Return the first field that is not what it should be; None where all are."""
    return next(
        (
            name
            for name, shape in SHAPES.items()
            if manifest.get(name) is not None and not shape(manifest[name])
        ),
        None,
    )

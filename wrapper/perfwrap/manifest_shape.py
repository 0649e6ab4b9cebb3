"""What may stand in ``run.json``: everything that reads a run relies on it, so it is looked at once, here.

What each field means is said in ``launch/manifest.py``. Fields that are missing, null or unknown do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LATEST = 1 << 62
"""Nanoseconds; times and differences of times stay within 64 bits."""

Shape = Callable[[Any], bool]


def text(value: object) -> bool:
    """Say whether it is a text."""
    return isinstance(value, str)


def number(value: object) -> bool:
    """Say whether it is a whole number that fits into 64 bits."""
    return isinstance(value, int) and abs(value) < LATEST


def listed(shape: Shape) -> Shape:
    """Return the shape of a list."""
    return lambda value: isinstance(value, list) and all(map(shape, value))


def fields(needed: bool = False, **shapes: Shape) -> Shape:
    """Return the shape of an object: its fields of these names have these shapes, or are null where not ``needed``."""

    def fits(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        return all(
            shape(value[name]) if value.get(name) is not None else not needed
            for name, shape in shapes.items()
        )

    return fits


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

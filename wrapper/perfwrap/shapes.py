"""Checks the types of values in JSON documents, so that later code can rely on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

LATEST = 1 << 62
"""Nanoseconds; times and differences of times fit into 64 bits."""

Shape = Callable[[Any], bool]


def text(value: object) -> bool:
    """Return whether it is a text."""
    return isinstance(value, str)


def number(value: object) -> bool:
    """Return whether it is an integer that fits into 64 bits."""
    return isinstance(value, int) and abs(value) < LATEST


def amount(value: object) -> bool:
    """Return whether it is a number that is at least 0."""
    return isinstance(value, (int, float)) and 0 <= value < LATEST


def positive(value: object) -> bool:
    """Return whether it is a number above 0."""
    return amount(value) and value != 0


def listed(shape: Shape) -> Shape:
    """Return the shape of a list of this shape."""
    return lambda value: isinstance(value, list) and all(map(shape, value))


def named(shape: Shape) -> Shape:
    """Return the shape of an object with any names, whose values have this shape."""
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


def fields(needed: bool = False, **shapes: Shape) -> Shape:
    """Return the shape of an object whose fields of these names have these shapes, or are null unless ``needed``."""

    def fits(value: Any) -> bool:
        if not isinstance(value, dict):
            return False
        return all(
            shape(value[name]) if value.get(name) is not None else not needed
            for name, shape in shapes.items()
        )

    return fits

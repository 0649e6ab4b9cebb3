"""What may stand in the JSON documents that are read again: what reads them further relies on it."""

from __future__ import annotations

from collections.abc import Callable
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


def amount(value: object) -> bool:
    """Say whether it is a number from 0 on, whole or not."""
    return isinstance(value, (int, float)) and 0 <= value < LATEST


def positive(value: object) -> bool:
    """Say whether it is a number above 0, whole or not."""
    return amount(value) and value != 0


def listed(shape: Shape) -> Shape:
    """Return the shape of a list."""
    return lambda value: isinstance(value, list) and all(map(shape, value))


def named(shape: Shape) -> Shape:
    """Return the shape of an object with any names."""
    return lambda value: isinstance(value, dict) and all(map(shape, value.values()))


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

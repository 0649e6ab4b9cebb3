"""Sentences about sections of the program's own code, for the rules about them."""

from __future__ import annotations

from pathlib import PurePath

from perfwrap.measures.loop.python_gaps import PythonGap
from perfwrap.rules.model import Location


def gap_lines(gap: PythonGap) -> str:
    """Return where the section is, e.g. ``in lines 27 to 35 of train.py``."""
    if gap.after is None:
        return "at an unknown line"
    name, line, until = PurePath(gap.after.file).name, gap.after.line, gap.until_line
    if until is None:
        return f"after line {line} of {name}"
    if until < line:
        return f"after line {line} of {name}, through line {until} of the next iteration"
    return f"around line {line} of {name}" if until == line else f"in lines {line} to {until} of {name}"


def gap_location(gap: PythonGap) -> Location | None:
    """Return where the section starts and ends."""
    if gap.after is None:
        return None
    return Location(gap.after.file, gap.after.line, gap.after.function, gap.until_line)

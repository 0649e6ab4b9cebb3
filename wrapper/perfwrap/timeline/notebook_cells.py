"""The cells of notebooks, which a timeline names in place of files: ``/home/me/digits.ipynb, cell [3]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

CELL = re.compile(r"^(?:(?P<notebook>.+), )?cell \[(?P<number>\d{1,9})\]$")
IN_STACK = re.compile(r"(?<=\bcell) (\[\d{1,9}\]):(\d+)(?=\)|$)")
SOURCES = "cells"
"""The key of a run under which the text of each cell is, by its name."""


def cell_name(notebook: str, number: int) -> str:
    """Return the name of the cell with this execution number; ``notebook`` is empty if unknown."""
    return f"{notebook}, cell [{number}]" if notebook else f"cell [{number}]"


def cell_number(file: str) -> int | None:
    """Return the number of a cell; None for a file."""
    found = CELL.match(file)
    return int(found["number"]) if found else None


def without_cell(file: str) -> str:
    """Return the notebook of a cell if it is known; the name of a file unchanged."""
    found = CELL.match(file)
    return (found["notebook"] if found else "") or file


def at_line(file: str, line: int) -> str:
    """Return e.g. ``train.py:31`` or ``digits.ipynb, cell [3], line 2``."""
    return f"{file}, line {line}" if CELL.match(file) else f"{file}:{line}"


def frame_in_words(frame: str) -> str:
    """Return a frame of a stack, e.g. ``step (train.py:31)`` or ``step (digits.ipynb, cell [3], line 2)``."""
    return IN_STACK.sub(r" \1, line \2", frame)


def cell_text(run: Mapping[str, Any], file: str) -> str | None:
    """Return the text of a cell of a run; None if the notebook could not be read, and for a file."""
    text = (run.get(SOURCES) or {}).get(file)
    return text if isinstance(text, str) else None

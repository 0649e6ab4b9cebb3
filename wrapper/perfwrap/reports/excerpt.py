"""Lines of the user's program, such as those that a finding names, as they are in the file now."""

from __future__ import annotations

import ast
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from perfwrap.redaction import masked
from perfwrap.rules.model import Location
from perfwrap.timeline.notebook_cells import cell_text

MAX_LINES = 6
"""Lines shown of a longer range; the others are counted."""

MAX_BYTES = 4 << 20
"""Larger files are not read."""

Numbered = tuple[int, str]


class Excerpt(Struct, frozen=True):
    """Numbered lines; ``left_out`` more lines belong to it. ``changed``: the file is newer than the run.

    ``around`` are the numbers of those lines that only stand around the range.
    """

    lines: tuple[Numbered, ...]
    left_out: int = 0
    changed: bool = False
    around: frozenset[int] = frozenset()


class Source(Struct, frozen=True):
    """The text of a file of the program, or of a cell. ``changed``: the file is newer than the run."""

    text: str
    changed: bool = False


def read_source(file: str, run: Mapping[str, Any]) -> Source | None:
    """Return the text of a file or cell as it is now, None if it cannot be read; ``run`` as for an excerpt."""
    text = cell_text(run, file)
    if text is not None:
        return Source(text)
    end = run.get("end")
    read = _read(Path(str(run.get("cwd") or "."), file))
    if read is None:
        return None
    text, changed_ns = read
    return Source(text, isinstance(end, dict) and "wall_ns" in end and changed_ns > end["wall_ns"])


def read_excerpt(location: Location, run: Mapping[str, Any], around: int = 0) -> Excerpt | None:
    """Return the lines that the location names, None when the file cannot be read or is shorter.

    ``run`` has the directory that a relative path is relative to, the wall clock at the end of the run, and the texts
    of notebook cells. ``around`` more lines before and after the lines show where they stand.
    """
    source = read_source(location.file, run)
    if source is None:
        return None
    text, lines = source.text, source.text.splitlines()
    if not 1 <= location.line <= len(lines):
        return None
    wanted = [(number, lines[number - 1]) for number in _numbers(location, text) if number <= len(lines)]
    kept = _kept(wanted, location)
    shown = _with_surroundings(kept, lines, around)
    beside = frozenset(number for number, _ in shown) - {number for number, _ in kept}
    quoted = tuple((number, masked(line, is_code=True)) for number, line in _dedented(shown))
    return Excerpt(quoted, len(wanted) - len(kept), source.changed, beside)


def _read(path: Path) -> tuple[str, int] | None:
    """Return the text of a file and when it was changed; None if it cannot be read."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace"), found.st_mtime_ns
    except (OSError, ValueError):  # ValueError: a null byte in the name.
        return None


def _with_surroundings(kept: list[Numbered], lines: list[str], around: int) -> list[Numbered]:
    """Return the lines with those before the first and after the last; not for a range around a loop."""
    first, last = kept[0][0], kept[-1][0]
    if not around or last < first:
        return kept
    before = range(max(1, first - around), first)
    after = range(last + 1, min(len(lines), last + around) + 1)
    return (
        [(number, lines[number - 1]) for number in before]
        + kept
        + [(number, lines[number - 1]) for number in after]
    )


def _numbers(location: Location, text: str) -> list[int]:
    """Return the numbers of the lines that are meant.

    A single line stands for its whole statement; a range that goes round a loop ends at the loop's end.
    """
    line, until = location.line, location.until_line
    if until is not None and until >= line:
        return list(range(line, until + 1))
    tree = parsed(text)
    if until is None:
        return list(range(line, _statement_end(tree, line) + 1))
    loop = _innermost_loop(tree, until, line)
    return [line] if loop is None else [*range(line, loop[1] + 1), *range(loop[0], until + 1)]


def parsed(text: str) -> ast.Module:
    """Return the program's syntax tree, an empty one when this Python cannot read it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # An odd escape in the user's strings is none of our business.
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def _statement_end(tree: ast.Module, line: int) -> int:
    """Return the last line of the statement that begins on that line; of one with a body, the line itself."""
    ends = [
        node.end_lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt)
        and node.lineno == line
        and node.end_lineno
        and not hasattr(node, "body")
    ]
    return max(ends, default=line)


def _innermost_loop(tree: ast.Module, first: int, last: int) -> tuple[int, int] | None:
    """Return the lines of the smallest loop around both lines, None if there is none."""
    loops = [
        (node.lineno, node.end_lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.For, ast.While, ast.AsyncFor)) and node.end_lineno is not None
    ]
    around = [(start, end) for start, end in loops if start <= first and last <= end]
    return min(around, key=lambda loop: loop[1] - loop[0], default=None)


def _kept(lines: list[Numbered], location: Location) -> list[Numbered]:
    """Return the lines to show, without empty ones; for a range that wraps around a loop, its beginning and end."""
    full = [(number, text) for number, text in lines if text.strip()] or lines[:1]
    if len(full) <= MAX_LINES or location.until_line is None or location.until_line >= location.line:
        return full[:MAX_LINES]
    half = MAX_LINES // 2
    return full[:half] + full[-half:]


def _dedented(lines: list[Numbered]) -> list[Numbered]:
    """Return the lines without the indentation that they share."""
    expanded = [(number, line.expandtabs(4).rstrip()) for number, line in lines]
    margin = min((len(line) - len(line.lstrip()) for _, line in expanded if line), default=0)
    return [(number, line[margin:]) for number, line in expanded]

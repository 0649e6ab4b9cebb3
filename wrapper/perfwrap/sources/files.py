"""Reads files that other tools recorded, any mix of formats, into one timeline.

Each file is recognised by its content, whatever its name. A file that cannot be read costs only itself, and so does
one that nobody recognises: the timeline says so as a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import polars as pl

from perfwrap.errors import PerfwrapError
from perfwrap.sources import SOURCES
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

HEAD_BYTES = 1 << 18
MOST_FILES = 1024
"""Of a folder; more are the ranks of no job that one machine can look at."""


class Source(Protocol):
    """What the module of a format offers."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Say whether a file is one of this format's; ``head`` is how it begins on the disk."""

    def add(self, builder: TimelineBuilder, path: Path) -> None:
        """Add the file; PerfwrapError when it cannot be read at all."""


@dataclass(frozen=True)
class Imported:
    """One file, and how it was read: ``format`` is None where nobody recognised it, ``problem`` why it is missing."""

    path: Path
    format: str | None
    problem: str = ""

    @property
    def read(self) -> bool:
        """Whether it stands in the timeline."""
        return not self.problem


def formats() -> tuple[str, ...]:
    """Return the formats that files can be imported from."""
    return tuple(name for name in SOURCES if hasattr(_source(name), "recognises"))


def expand(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files, for a folder those in it; PerfwrapError for what is not there."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(
                file for file in path.iterdir() if file.is_file() and not file.name.startswith(".")
            )
            if len(inside) > MOST_FILES:
                raise PerfwrapError(f"{path} holds {len(inside)} files.", "Name those to import.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            what = f"{path} is no file." if path.exists() else f"There is no file {path}."
            raise PerfwrapError(what, "Give files that a profiler wrote, or a folder of them.")
    return tuple(dict.fromkeys(found))


def read(
    paths: Iterable[Path], run: dict[str, Any], given: str | None = None
) -> tuple[Timeline, tuple[Imported, ...]]:
    """Return the timeline of the files, and what became of each; ``given`` is the format of all of them.

    ``run`` is the manifest; the timeline's has the files as ``imported``.
    """
    builder = TimelineBuilder()
    files = tuple(_add(builder, path, given) for path in paths)
    for file in files:
        if not file.read:
            builder.warn(f"{file.path.name} was left out: {file.problem}.")
    listed = [{"file": str(file.path), "format": file.format} for file in files if file.read]
    timeline = builder.build({**run, "imported": listed})
    return replace(timeline, warnings=timeline.warnings + tuple(_apart(timeline))), files


def _apart(timeline: Timeline) -> Iterator[str]:
    """Return a warning for each format whose values or stacks lie outside of the time in which anything was done."""
    if timeline.spans.is_empty():
        return
    begin, end = timeline.spans.select(
        pl.col("start").min(), (pl.col("start") + pl.col("duration")).max().alias("end")
    ).row(0)
    for table, what in ((timeline.samples, "values"), (timeline.stacks, "stacks")):
        for source, first, last in (
            table.group_by("source", maintain_order=True)
            .agg(pl.col("time").min().alias("first"), pl.col("time").max().alias("last"))
            .iter_rows()
        ):
            if last < begin or first > end:
                yield (
                    f"The {what} of {source} are from another time than what the other files recorded: they are of "
                    "another run, or their clocks differ. What the report says of them together may be wrong."
                )


def _add(builder: TimelineBuilder, path: Path, given: str | None) -> Imported:
    """Add one file, if it is recognised and can be read."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        return Imported(path, None, f"it cannot be opened ({error.strerror})")
    if not head:
        return Imported(path, None, "it is empty")
    found = given or next(_recognising(path, head), None)
    if found is None:
        return Imported(path, None, "its content is of no format that perfwrap reads")
    try:
        _source(found).add(builder, path)
    except PerfwrapError as error:
        return Imported(path, found, f"it could not be read as {found} ({error.message.rstrip('.')})")
    except UNFORESEEN as error:
        return Imported(
            path, found, f"it could not be read as {found} ({type(error).__name__}: {str(error)[:200]})"
        )
    return Imported(path, found)


def _recognising(path: Path, head: bytes) -> Iterator[str]:
    """Return the formats that recognise a file."""
    return (name for name in formats() if _recognises(name, path, head))


def _recognises(name: str, path: Path, head: bytes) -> bool:
    """Say whether a format recognises a file; one that is too damaged to be asked about is nobody's."""
    try:
        return _source(name).recognises(path, head)
    except UNFORESEEN:
        return False


def _source(name: str) -> Source:
    """Return the module of a format."""
    return cast(Source, import_module(f"perfwrap.sources.{name}"))

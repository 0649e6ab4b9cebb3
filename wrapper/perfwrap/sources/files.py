"""Reads files of other tools, in any mix of formats, into one timeline.

The format of a file is detected by its content, not by its name. A file that cannot be read, or has an unknown
format, is skipped with a warning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

import polars as pl
from msgspec import Struct

from perfwrap.errors import PerfwrapError
from perfwrap.sources import SOURCES
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.sources.table_folders import is_folder, is_table
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

HEAD_BYTES = 1 << 18
OWN_FORMAT = "journal"
"""What perfwrap itself writes; these files are not imported."""
MAX_FILES = 1024
"""Maximum number of files in a folder; one machine cannot read a job with more ranks."""


class Source(Protocol):
    """The interface of a format's module."""

    def recognises(self, path: Path, head: bytes) -> bool:
        """Return whether a file has this format; ``head`` are its first bytes on disk."""

    def add(self, builder: TimelineBuilder, path: Path) -> None:
        """Add the file; PerfwrapError if it cannot be read at all."""


class Imported(Struct, frozen=True):
    """One file and its result: ``format`` is None if unknown, ``problem`` is why it was skipped, with no full stop."""

    path: Path
    format: str | None
    problem: str = ""

    @property
    def read(self) -> bool:
        """Whether it is in the timeline."""
        return not self.problem


def formats() -> tuple[str, ...]:
    """Return the formats that files can be imported from."""
    return tuple(name for name in SOURCES if hasattr(_source(name), "recognises"))


def expand(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files, and for a folder the files in it; PerfwrapError for missing ones.

    A folder in which nsys wrote a file for each table is one recording, and so is each of its files.
    """
    found: list[Path] = []
    for path in paths:
        if is_folder(path):
            found.append(path)
        elif path.is_dir():
            inside = sorted(
                file
                for file in path.iterdir()
                if (file.is_file() or is_folder(file)) and not file.name.startswith(".")
            )
            if len(inside) > MAX_FILES:
                raise PerfwrapError(f"{path} contains {len(inside)} files.", "Give the files to import.")
            found += inside
        elif path.is_file():
            found.append(path.parent if is_table(path) else path)
        else:
            what = f"{path} is not a file." if path.exists() else f"There is no file {path}."
            raise PerfwrapError(what, "Give files that a profiler wrote, or a folder of them.")
    return tuple(dict.fromkeys(found))


def read(
    paths: Iterable[Path], run: dict[str, Any], given: str | None = None
) -> tuple[Timeline, tuple[Imported, ...]]:
    """Return the timeline of the files, and the result for each; ``given`` is the format of all of them.

    ``run`` is the manifest; the timeline's manifest lists the files as ``imported``.
    """
    builder = TimelineBuilder()
    files = tuple(_add(builder, path, given) for path in paths)
    for file in files:
        if not file.read:
            builder.warn(f"{file.path.name} was skipped: {file.problem}.")
    listed = [{"file": str(file.path), "format": file.format} for file in files if file.read]
    timeline = builder.build({**run, "imported": listed})
    return replace(timeline, warnings=timeline.warnings + tuple(_apart(timeline))), files


def _apart(timeline: Timeline) -> Iterator[str]:
    """Yield a warning for each format whose values or stacks do not overlap in time with the spans."""
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
                    f"The {what} of {source} do not overlap in time with the other files: they are from another run, "
                    "or the clocks differ. Results that combine them may be wrong."
                )


def _add(builder: TimelineBuilder, path: Path, given: str | None) -> Imported:
    """Add one file, if its format is known and it can be read."""
    head = b""
    if not is_folder(path):
        try:
            with path.open("rb") as file:
                head = file.read(HEAD_BYTES)
        except OSError as error:
            return Imported(path, None, f"it cannot be opened ({error.strerror})")
        if not head:
            return Imported(path, None, "it is empty")
    found = given or next(_recognising(path, head), None)
    if found is None:
        return Imported(path, None, "perfwrap does not know its format")
    try:
        _source(found).add(builder, path)
    except PerfwrapError as error:
        hint = f". {error.hint.rstrip('.')}" if error.hint else ""
        return Imported(path, found, f"it could not be read as {found} ({error.message.rstrip('.')}{hint})")
    except UNFORESEEN as error:
        return Imported(
            path, found, f"it could not be read as {found} ({type(error).__name__}: {str(error)[:200]})"
        )
    return Imported(path, found)


def _recognising(path: Path, head: bytes) -> Iterator[str]:
    """Return the formats that recognise a file."""
    # Not of formats(), which imports all readers: the first that recognises the file is enough.
    return (name for name in SOURCES if name != OWN_FORMAT and _recognises(name, path, head))


def _recognises(name: str, path: Path, head: bytes) -> bool:
    """Return whether a format recognises a file; False if the file is too damaged to check."""
    try:
        return _source(name).recognises(path, head)
    except UNFORESEEN:
        return False


def _source(name: str) -> Source:
    """Return the module of a format."""
    return cast(Source, import_module(f"perfwrap.sources.{SOURCES[name]}"))

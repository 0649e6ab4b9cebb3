"""Reads what other tools wrote into a run folder, beside the journals and on their clock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from perfwrap.errors import PerfwrapError
from perfwrap.sources import ncu, nsys
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock

HEAD_BYTES = 4096
SUFFIXES = (".sqlite", ".csv")
"""Of files that are read; logs and the like are kept for people."""


def add_tools(builder: TimelineBuilder, folder: Path, clock: HostClock | None, host: str | None) -> None:
    """Add what can be read in the folder; a file that cannot costs only itself.

    ``clock`` and ``host`` are those of the run's first host, where tools are started.
    """
    for path in sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES):
        try:
            with path.open("rb") as file:
                head = file.read(HEAD_BYTES)
            add = _source(path, head, clock, host)
            if add is not None:
                add(builder, path)
            if add is ncu.add:
                builder.warn("ncu replayed kernels during this run: its times are not the program's.")
        except PerfwrapError as error:
            _leave_out(builder, path, error.message)
        except UNFORESEEN as error:
            _leave_out(builder, path, f"{path} cannot be read: {error}")


def _source(
    path: Path, head: bytes, clock: HostClock | None, host: str | None
) -> Callable[[TimelineBuilder, Path], None] | None:
    """Return what reads a file, by its content."""
    if nsys.recognises(path, head):
        return partial(nsys.add, clock=clock, host=host)
    return ncu.add if ncu.recognises(path, head) else None


def _leave_out(builder: TimelineBuilder, path: Path, why: str) -> None:
    """Say that a file could not be read."""
    builder.warn(f"{why.rstrip('.')}; it was left out.")
    builder.add_row("coverage", what="tools", start=0, end=0, note=f"{path.name}: {why}", source="tools")

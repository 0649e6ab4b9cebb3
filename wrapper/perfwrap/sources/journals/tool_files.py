"""Reads files of other tools in a run folder, with their times converted to the clock of the journals."""

from __future__ import annotations

from pathlib import Path

from perfwrap.errors import PerfwrapError
from perfwrap.sources.damage import UNFORESEEN
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.clocks import HostClock

HEAD_BYTES = 4096
SUFFIXES = (".sqlite", ".csv")
"""Suffixes of files that are read; logs and other files are for people."""


def add_tools(builder: TimelineBuilder, folder: Path, clock: HostClock | None, host: str | None) -> None:
    """Add the readable files of the folder; a file that cannot be read is skipped.

    ``clock`` and ``host`` are those of the run's first host, on which tools are started.
    """
    paths = sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES)
    if not paths:
        return
    # Imported here: most runs have no such file, and a report starts faster without its readers.
    from perfwrap.sources.nsys import nsys_export
    from perfwrap.sources.tables import ncu_tables

    for path in paths:
        try:
            with path.open("rb") as file:
                head = file.read(HEAD_BYTES)
            if nsys_export.recognises(path, head):
                nsys_export.add(builder, path, clock=clock, host=host)
            elif ncu_tables.recognises(path, head):
                ncu_tables.add(builder, path)
                builder.warn("ncu replayed kernels during this run, so the program ran slower than usual.")
        except PerfwrapError as error:
            _leave_out(builder, path, error.message)
        except UNFORESEEN as error:
            _leave_out(builder, path, f"{path} cannot be read: {error}")


def _leave_out(builder: TimelineBuilder, path: Path, why: str) -> None:
    """Warn that a file could not be read."""
    builder.warn(f"{why.rstrip('.')}; it was skipped.")
    builder.add_row("coverage", what="tools", start=0, end=0, note=f"{path.name}: {why}", source="tools")

"""Show the report of an earlier run once more."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder

if TYPE_CHECKING:
    from perfwrap.diagnosis import Diagnosis
    from perfwrap.timeline.model import Timeline


def report(run: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
    """Show the report of an earlier run once more, worked out anew from what was recorded.

    Needs neither torch nor the machine that the run was recorded on. Rewrites RUN/diagnosis.json.
    """
    if not run.is_dir():
        raise PerfwrapError(
            f"{run} is not a folder." if run.exists() else f"There is no folder {run}.",
            "Give the folder that `perfwrap run` named at its end.",
        )
    show(run)


def show(folder: Path) -> None:
    """Diagnose a run, write its diagnosis.json, and show the report on standard output."""
    _show(folder, sys.stdout)


def report_run(folder: Path) -> None:
    """Diagnose a run that has just ended, write its diagnosis.json, and show the report on stderr."""
    _show(folder, sys.stderr)


def _show(folder: Path, stream: TextIO) -> None:
    """Diagnose a run, write its diagnosis.json, and show the report."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports import terminal
    from perfwrap.reports.page import Page

    diagnosis = _diagnose(RunFolder(folder), stream)
    page = Page(stream)
    if stream is sys.stderr:
        page.blank()
    terminal.draw(diagnosis, folder, page)
    page.show()


def _diagnose(folder: RunFolder, stream: TextIO) -> Diagnosis:
    """Return the diagnosis of a run; what cannot be written is said, not fatal: the report is still shown."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.diagnosis import diagnose
    from perfwrap.reports import json

    diagnosis = diagnose(_timeline(folder))
    try:
        json.write(diagnosis, folder.diagnosis)
    except OSError as error:
        print(f"perfwrap: {folder.diagnosis} cannot be written: {error.strerror}", file=sys.stderr)
    return diagnosis


def _timeline(folder: RunFolder) -> Timeline:
    """Return what was recorded: from the journals, or, of imported files, the saved timeline."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.sources import journal
    from perfwrap.timeline import storage

    imported = folder.read_manifest().get("imported")
    return storage.load(folder.timeline) if imported is not None else journal.read(folder)

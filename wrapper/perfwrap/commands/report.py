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


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    html: Annotated[bool, typer.Option("--html", help="Write RUN/report.html anew, too.")] = False,
) -> None:
    """Show the report of an earlier run once more, worked out anew from what was recorded.

    Needs neither torch nor the machine that the run was recorded on. Rewrites RUN/diagnosis.json.
    """
    if not run.is_dir():
        raise PerfwrapError(
            f"{run} is not a folder." if run.exists() else f"There is no folder {run}.",
            "Give the folder that `perfwrap run` named at its end.",
        )
    show(run, html)


def show(folder: Path, html: bool = True) -> None:
    """Diagnose a run, write its diagnosis.json and report.html, and show the report on standard output."""
    _show(folder, sys.stdout, html)


def report_run(folder: Path) -> None:
    """Diagnose a run that has just ended, write diagnosis.json and report.html, and show the report on stderr."""
    _show(folder, sys.stderr, html=True)


def _show(folder: Path, stream: TextIO, html: bool) -> None:
    """Diagnose a run, write what is to be written, and show the report."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports import terminal
    from perfwrap.reports.page import Page

    timeline = _timeline(RunFolder(folder))
    diagnosis = _diagnose(RunFolder(folder), timeline, html)
    page = Page(stream)
    if stream is sys.stderr:
        page.blank()
    terminal.draw(diagnosis, folder, page)
    page.show()
    if html:
        _write_html(diagnosis, timeline, RunFolder(folder).report, stream)


def _write_html(diagnosis: Diagnosis, timeline: Timeline, path: Path, stream: TextIO) -> None:
    """Write the HTML report and say where it is; where it cannot be written, say why."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports.html import page as html_page
    from perfwrap.reports.page import Page

    try:
        html_page.write(diagnosis, timeline, path)
    except (OSError, ImportError) as error:  # ImportError: plotly is missing.
        print(f"perfwrap: {path} cannot be written: {error}", file=sys.stderr)
        return
    page = Page(stream)
    page.line(("Report: ", ""), (str(path), "bold"))
    page.show()


def _diagnose(folder: RunFolder, timeline: Timeline, overview: bool) -> Diagnosis:
    """Return the diagnosis of a run; what cannot be written is said, not fatal: the report is still shown."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.diagnosis import diagnose
    from perfwrap.reports import json

    diagnosis = diagnose(timeline, overview=overview)
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

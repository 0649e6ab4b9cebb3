"""Show the report of an earlier run once more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from perfwrap.commands import runs
from perfwrap.commands.joined import diagnose_many, has_many_ranks, put_clocks_right
from perfwrap.commands.output_options import Format, Html, Ignore, Rules, Run, chosen, put, words
from perfwrap.run_folder import RunFolder
from perfwrap.shown_text import say

if TYPE_CHECKING:
    from perfwrap.configuration import Choice
    from perfwrap.diagnosis import Diagnosis
    from perfwrap.timeline.model import Timeline

FORMATS = ("terminal", "json", "markdown", "github")


def report(
    run: Run = runs.LATEST,
    format: Format = "terminal",
    html: Html = False,
    rules: Rules = "",
    ignore: Ignore = "",
) -> None:
    """Show the report of an earlier run once more, worked out anew from what was recorded.

    Needs neither torch nor the machine that the run was recorded on. Rewrites RUN/diagnosis.json. With --format
    json, markdown or github, that alone goes to standard output: the document of docs/diagnosis-json.md, a text for a
    pull request, or GitHub's annotations (and the text into the job's summary, where GITHUB_STEP_SUMMARY names one).
    """
    form = chosen(format, FORMATS)
    folder = runs.find(str(run))
    choice = choose(rules, ignore)
    if form == "terminal":
        show(folder, html, choice)
        return
    diagnosis, timeline = _diagnose(RunFolder(folder), html, choice)
    put(_texts(diagnosis, folder)[form](), has_commands=form == "github")
    if html:
        _write_html(diagnosis, timeline, RunFolder(folder).report)
    _write_trace(diagnosis, timeline, RunFolder(folder))


def choose(rules: str = "", ignore: str = "") -> Choice:
    """Return which rules shall be asked: those of the options, and of the settings nearest to this folder."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.configuration import choose

    try:
        place = Path.cwd()
    except FileNotFoundError:
        place = Path("/")  # The current directory has been deleted: there are no settings of its.
    return choose(place, words(rules), words(ignore))


def _texts(diagnosis: Diagnosis, folder: Path) -> dict[str, Callable[[], str]]:
    """Return how each format is written."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports import json, markdown, workflow

    def github() -> str:
        workflow.append_summary(markdown.text(diagnosis, folder))
        return workflow.annotated(diagnosis, os.environ.get("GITHUB_WORKSPACE"))

    return {
        "json": lambda: json.text(diagnosis),
        "markdown": lambda: markdown.text(diagnosis, folder),
        "github": github,
    }


def show(folder: Path, html: bool = True, choice: Choice | None = None) -> None:
    """Diagnose a run, write what belongs to it, and show the report on standard output."""
    _show(folder, sys.stdout, html, choice)


def report_run(folder: Path, choice: Choice | None = None) -> None:
    """Diagnose a run that has just ended, write what belongs to it, and show the report on stderr."""
    _show(folder, sys.stderr, True, choice)


def _show(folder: Path, stream: TextIO, html: bool, choice: Choice | None) -> None:
    """Diagnose a run, write what is to be written, and show the report."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports import terminal
    from perfwrap.reports.page import Page

    diagnosis, timeline = _diagnose(RunFolder(folder), html, choice)
    page = Page(stream)
    if stream is sys.stderr:
        page.blank()
    terminal.draw(diagnosis, folder, page)
    page.show()
    if html and _write_html(diagnosis, timeline, RunFolder(folder).report):
        page = Page(stream)
        page.line(("Report: ", ""), (str(RunFolder(folder).report), "bold"))
        page.show()
    _write_trace(diagnosis, timeline, RunFolder(folder))


def _diagnose(folder: RunFolder, overview: bool, choice: Choice | None) -> tuple[Diagnosis, Timeline]:
    """Return the diagnosis of a run; what cannot be written is said, not fatal: the report is still shown."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports import json

    diagnosis, timeline = _read(folder.path, overview, choice)
    try:
        json.write(diagnosis, folder.diagnosis)
    except OSError as error:
        say(f"perfwrap: {folder.diagnosis} cannot be written: {error.strerror}")
    return diagnosis, timeline


def write_html(folder: Path, path: Path, trial: dict[str, Any]) -> bool:
    """Write the HTML report of a run with what was tried; where it cannot be written, say why and return False."""
    diagnosis, timeline = _read(folder, True, None)
    return _write_html(diagnosis, timeline, path, trial)


def _write_html(
    diagnosis: Diagnosis, timeline: Timeline, path: Path, trial: dict[str, Any] | None = None
) -> bool:
    """Write the HTML report; where it cannot be written, say why and return False."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports.html import page
    from perfwrap.reports.waiting import Waiting

    try:
        with Waiting(f"Writing {path.name}"):
            page.write(diagnosis, timeline, path, trial)
    except (OSError, ImportError) as error:  # ImportError: plotly is missing.
        say(f"perfwrap: {path} cannot be written: {error}")
        return False
    return True


def _write_trace(diagnosis: Diagnosis, timeline: Timeline, folder: RunFolder) -> None:
    """Write the trace for viewers; after the report, which nobody should wait for."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.reports import trace
    from perfwrap.reports.waiting import Waiting

    try:
        with Waiting(f"Writing {folder.trace.name}"):
            trace.write(diagnosis, timeline, folder.trace)
    except OSError as error:
        say(f"perfwrap: {folder.trace} cannot be written: {error.strerror}")


def diagnosed(folder: Path) -> Diagnosis:
    """Return the diagnosis of a run, worked out anew; nothing is written."""
    return _read(folder, False, None)[0]


def read(folder: Path) -> tuple[Diagnosis, Timeline]:
    """Return the same with the timeline that it is of."""
    return _read(folder, False, None)


def _read(folder: Path, overview: bool, choice: Choice | None) -> tuple[Diagnosis, Timeline]:
    """Return the diagnosis of a run, and the timeline that it is of."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.diagnosis import diagnose
    from perfwrap.reports.waiting import Waiting

    choice = choice or choose()
    with Waiting(f"Reading {folder.name}"):
        if has_many_ranks(RunFolder(folder)):
            return diagnose_many(RunFolder(folder), overview, choice)
        timeline = put_clocks_right(_timeline(RunFolder(folder)))
        diagnosis = diagnose(
            timeline, skipped=choice.skipped, thresholds=choice.thresholds, overview=overview
        )
    return diagnosis, timeline


def _timeline(folder: RunFolder) -> Timeline:
    """Return what was recorded: from the journals, or, of imported files, the saved timeline."""
    # Imported here, not above: recording must work, and start fast, where polars is missing.
    from perfwrap.sources import journal
    from perfwrap.timeline import storage

    imported = folder.read_manifest().get("imported")
    return storage.load(folder.timeline) if imported is not None else journal.read(folder)

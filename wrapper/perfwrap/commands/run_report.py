"""Diagnose a run, show its report, and write the files that belong to it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, TextIO

from perfwrap.analysis.run_reader import diagnose_run
from perfwrap.commands.options.option_values import words
from perfwrap.diagnosis.configuration import Choice, choose_here
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports import json, trace
from perfwrap.reports.terminal import run_text
from perfwrap.reports.terminal.page import Page
from perfwrap.reports.waiting import Waiting
from perfwrap.run_folder import RunFolder
from perfwrap.shown_text import say
from perfwrap.timeline.model import Timeline


def choose_rules(rules: str = "", ignore: str = "", price: str = "") -> Choice:
    """Return which rules run, and the price: by the options, and by the settings file nearest to the current folder."""
    return choose_here(words(rules), words(ignore), price)


def read(folder: Path) -> tuple[Diagnosis, Timeline]:
    """Return the diagnosis of a run, recomputed, and its timeline; nothing is written."""
    return _read(folder, False, None)


def diagnosed(folder: Path) -> Diagnosis:
    """Return the diagnosis of a run, recomputed; nothing is written."""
    return read(folder)[0]


def show(folder: Path, html: bool = True, choice: Choice | None = None, every: bool = False) -> None:
    """Diagnose a run, write its files, and print the report to standard output."""
    _show(folder, sys.stdout, html, choice, every)


def report_run(folder: Path, choice: Choice | None = None) -> None:
    """Diagnose a run that has just ended, write its files, and print the report to standard error."""
    _show(folder, sys.stderr, True, choice)


def diagnose_and_keep(folder: RunFolder, overview: bool, choice: Choice | None) -> tuple[Diagnosis, Timeline]:
    """Return the diagnosis of a run, and write it as JSON; a file that cannot be written gives a message only."""
    diagnosis, timeline = _read(folder.path, overview, choice)
    try:
        json.write(diagnosis, folder.diagnosis)
    except OSError as error:
        say(f"perfwrap: cannot write {folder.diagnosis}: {error.strerror}")
    return diagnosis, timeline


def write_trial_page(folder: Path, path: Path, trial: dict[str, Any]) -> bool:
    """Write the HTML report of a run with the results of a trial; return whether it could be written."""
    diagnosis, timeline = _read(folder, True, None)
    return write_html(diagnosis, timeline, path, trial)


def write_html(
    diagnosis: Diagnosis, timeline: Timeline, path: Path, trial: dict[str, Any] | None = None
) -> bool:
    """Write the HTML report; if that fails, print why and return False."""
    # Imported here, not above: the page needs plotly, and the terminal report works without it.
    from perfwrap.reports.html import html_page

    try:
        with Waiting(f"Writing {path.name}"):
            html_page.write(diagnosis, timeline, path, trial)
    except (OSError, ImportError) as error:  # ImportError: plotly is missing.
        say(f"perfwrap: cannot write {path}: {error}")
        return False
    return True


def write_trace(diagnosis: Diagnosis, timeline: Timeline, folder: RunFolder) -> None:
    """Write the trace for viewers; after the report, so that the user need not wait for it."""
    try:
        with Waiting(f"Writing {folder.trace.name}"):
            trace.write(diagnosis, timeline, folder.trace)
    except OSError as error:
        say(f"perfwrap: cannot write {folder.trace}: {error.strerror}")


def _show(folder: Path, stream: TextIO, html: bool, choice: Choice | None, every: bool = False) -> None:
    """Diagnose a run, write its files, and print the report."""
    own = RunFolder(folder)
    diagnosis, timeline = diagnose_and_keep(own, html, choice)
    page = Page(stream)
    if stream is sys.stderr:
        page.blank()
    run_text.draw(diagnosis, folder, page, every)
    page.show()
    if html and write_html(diagnosis, timeline, own.report):
        page = Page(stream)
        page.line(("Report: ", ""), (str(own.report), "bold"))
        page.show()
    write_trace(diagnosis, timeline, own)


def _read(folder: Path, overview: bool, choice: Choice | None) -> tuple[Diagnosis, Timeline]:
    """Return the diagnosis of a run, recomputed, and its timeline."""
    with Waiting(f"Reading {folder.name}"):
        return diagnose_run(RunFolder(folder), choice or choose_rules(), overview)

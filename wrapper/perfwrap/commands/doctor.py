"""Check what perfwrap can record on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from perfwrap.checkup.check_line import Line
from perfwrap.checkup.command import examine_command
from perfwrap.checkup.interpreters import find_interpreters
from perfwrap.checkup.machine_checks import (
    examine_monitors,
    examine_reading,
    examine_run_folder,
    examine_tools,
)
from perfwrap.reports.terminal.page import Page

NAME_COLUMNS = 15
STYLES = {"yes": "green", "no": "red", "partly": "yellow"}
NOTHING = 1
"""Exit code when no training can be recorded."""


def doctor(
    command: Annotated[list[str] | None, typer.Argument(metavar="[--] [CMD...]", show_default=False)] = None,
) -> None:
    """Check what perfwrap can record on this machine.

    With CMD, run that command to its end, and report which of its Python processes can be recorded, which probes work
    in them, and why the others cannot be recorded. The output of the command is not changed, its recording is deleted.
    Ctrl-C ends the command early and reports what was seen until then. Exit code 1: no training can be recorded.
    """
    reached, can_record = examine_command(command) if command else ([], False)
    pythons = find_interpreters(dict(os.environ)) if not command else []
    folder = examine_run_folder(Path())
    page = Page(sys.stdout)
    _draw(page, "Python", [python.line() for python in pythons] + reached)
    _draw(page, "Machine", examine_monitors())
    _draw(page, "Files", [folder, examine_reading()])
    _draw(page, "Other tools", examine_tools())
    can_record = (can_record or any(python.can_record for python in pythons)) and folder.works == "yes"
    page.paragraph(_conclusion(can_record, bool(command)))
    page.show()
    if not can_record:
        raise typer.Exit(NOTHING)


def _draw(page: Page, title: str, lines: list[Line]) -> None:
    """Draw a table of three columns: whether it works, its name, and the details."""
    if lines:
        page.line((title, "bold"))
        for line in lines:
            page.paragraph(line.detail, indent=2, hanging=f"{line.works:<6}  {line.what:<{NAME_COLUMNS}}  ")
        page.blank()


def _conclusion(can_record: bool, with_command: bool) -> str:
    """Return the conclusion in one sentence."""
    if can_record:
        return "Training can be recorded here: perfwrap run -- python train.py"
    if with_command:
        return "No training in this command was recorded; see the lines marked `no`."
    return (
        "No training can be recorded with the Python interpreters found here. Activate the environment of your "
        "training, or name its command: perfwrap doctor -- python train.py"
    )

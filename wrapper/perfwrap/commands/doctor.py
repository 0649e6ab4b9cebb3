"""Say what can be recorded here, and why not."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfwrap.checkup.command import examine_command
from perfwrap.checkup.interpreters import find_interpreters
from perfwrap.checkup.machine import examine_monitors, examine_reading, examine_run_folder, examine_tools
from perfwrap.checkup.model import Line

if TYPE_CHECKING:
    from perfwrap.reports.page import Page

NAME_COLUMNS = 15
STYLES = {"yes": "green", "no": "red", "partly": "yellow"}
NOTHING = 1
"""Exit code when no training can be recorded."""


def doctor(
    command: Annotated[list[str] | None, typer.Argument(metavar="[--] [CMD...]", show_default=False)] = None,
) -> None:
    """Say what can be recorded here, and why not. Exits with 1 when no training can be recorded.

    With CMD, runs that command to its end, with its output untouched and its recording thrown away, and says
    which of its Python processes were reached, which probes work in them, and why others were not reached.
    Ctrl-C ends the command early; what was seen until then is told.
    """
    # Imported here, not above: all commands are loaded together, and `run` must start fast.
    from perfwrap.reports.page import Page

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
    """Add a table of three columns: whether it works, what it is, what is known about it."""
    if lines:
        page.line((title, "bold"))
        for line in lines:
            page.paragraph(line.detail, indent=2, hanging=f"{line.works:<6}  {line.what:<{NAME_COLUMNS}}  ")
        page.blank()


def _conclusion(can_record: bool, with_command: bool) -> str:
    """Return the one sentence that the table comes down to."""
    if can_record:
        return "Training can be recorded here: perfwrap run -- python train.py"
    if with_command:
        return "No training in this command was recorded; the lines marked `no` say why."
    return (
        "No training can be recorded with the Pythons found here. Activate the environment of your training, "
        "or name it: perfwrap doctor -- python train.py"
    )

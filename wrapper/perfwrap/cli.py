"""The table of commands; turns PerfwrapError into text and an exit code."""

from __future__ import annotations

import sys

import typer

from perfwrap import __version__
from perfwrap.commands import COMMANDS
from perfwrap.commands.optional_values import Commands, CommandWithOptionalValues
from perfwrap.errors import PerfwrapError
from perfwrap.shown_text import say

USAGE_ERROR = 2
"""Exit code of perfwrap's own errors, as of every well-behaved command line tool."""

app = typer.Typer(
    name="perfwrap",
    cls=Commands,
    help="Run an unmodified PyTorch training command and learn what holds it back.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _name, _function, _settings in COMMANDS:
    app.command(_name, cls=CommandWithOptionalValues, context_settings=_settings)(_function)


@app.callback(invoke_without_command=True)
def options(version: bool = typer.Option(False, "--version", help="Print the version and leave.")) -> None:
    """Run an unmodified PyTorch training command and learn what holds it back."""
    if version:
        say(f"perfwrap {__version__}", sys.stdout)
        raise typer.Exit()


def main() -> None:
    """Run the command line."""
    try:
        app()
    except PerfwrapError as error:
        say(f"perfwrap: {error.message}")
        if error.hint:
            say(f"  {error.hint}")
        sys.exit(USAGE_ERROR)
    except PermissionError as error:
        if error.filename is None:
            raise
        say(f"perfwrap: {error.filename}: {error.strerror}.")
        say("  Whoever it belongs to can open it, or give you a copy.")
        sys.exit(USAGE_ERROR)

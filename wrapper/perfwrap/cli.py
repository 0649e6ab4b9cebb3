"""The table of commands; turns PerfwrapError into text and an exit code."""

from __future__ import annotations

import sys

import typer

from perfwrap import __version__
from perfwrap.commands import COMMANDS
from perfwrap.commands.optional_values import CommandWithOptionalValues
from perfwrap.commands.streams import StandardStreams
from perfwrap.errors import PerfwrapError

USAGE_ERROR = 2
"""Exit code of perfwrap's own errors, as of every well-behaved command line tool."""

app = typer.Typer(
    name="perfwrap",
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
        print(f"perfwrap {__version__}")
        raise typer.Exit()


def main() -> None:
    """Run the command line."""
    with StandardStreams(USAGE_ERROR):
        _main()


def _main() -> None:
    """Run the command line, and say what the user can mend."""
    try:
        app()
    except PerfwrapError as error:
        print(f"perfwrap: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    except PermissionError as error:
        if error.filename is None:
            raise
        print(f"perfwrap: {error.filename}: {error.strerror}.", file=sys.stderr)
        print("  Whoever it belongs to can open it, or give you a copy.", file=sys.stderr)
        sys.exit(USAGE_ERROR)

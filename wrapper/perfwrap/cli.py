"""The table of commands; turns PerfwrapError into text and an exit code."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

from perfwrap import __version__
from perfwrap.commands import COMMANDS
from perfwrap.commands.optional_values import Commands, CommandWithOptionalValues
from perfwrap.commands.streams import StandardStreams
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import DELETED, ELSEWHERE
from perfwrap.shown_text import say

USAGE_ERROR = 2
"""Exit code of perfwrap's own errors, as of every well-behaved command line tool."""

OWNER = "Whoever it belongs to can open it, or give you a copy."
ROOM = "Make room there, or name another place."
NAME = "Look at how its name is spelled, or give another one."
PLACE = "Look at what is wrong with that place, or name another."
MENDED_BY = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), OWNER),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), ROOM),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR), NAME),
    **dict.fromkeys((errno.EROFS, errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV), PLACE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "Raise the limit: ulimit -n"),
}
"""What helps against what the system answers, by number; all else is a defect of perfwrap's."""
ABOUT_A_FILE = frozenset(MENDED_BY) - {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
}
"""Those that must name it: otherwise perfwrap did something that it may not."""
LONGEST_NAME = 200

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
    with StandardStreams(USAGE_ERROR):
        _main()


def _main() -> None:
    """Run the command line, and say what the user can mend."""
    try:
        app()
    except PerfwrapError as error:
        _fail(error.message, error.hint)
    except OSError as error:
        if _is_directory_gone():
            _fail(DELETED, ELSEWHERE)
        if error.errno not in MENDED_BY or (error.filename is None and error.errno in ABOUT_A_FILE):
            raise
        named = (
            _shortened(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else "a file"
        )
        _fail(f"{named}: {error.strerror}.", MENDED_BY[error.errno])


def _fail(message: str, hint: str) -> NoReturn:
    """Say what happened and what to do, and end."""
    say(f"perfwrap: {message}")
    if hint:
        say(f"  {hint}")
    if _is_directory_gone() and message != DELETED:
        say(f"  {DELETED} {ELSEWHERE}")
    sys.exit(USAGE_ERROR)


def _shortened(name: str) -> str:
    """Return a name that fits on a screen."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME // 2]}…{name[-LONGEST_NAME // 2 :]}"


def _is_directory_gone() -> bool:
    """Say whether the current directory has been deleted."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False

"""The command line: runs a command, and turns PerfwrapError into text and an exit code."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import sys
import warnings
from pathlib import Path
from typing import NoReturn

import typer

from perfwrap import __version__
from perfwrap.commands.command_group import CommandGroup, add_placeholders
from perfwrap.commands.streams import StandardStreams
from perfwrap.errors import PerfwrapError
from perfwrap.launch.uv_tool import without_tool
from perfwrap.run_folder import DELETED, ELSEWHERE
from perfwrap.shown_text import say

USAGE_ERROR = 2
"""Exit code of perfwrap's own errors, as in most command line tools."""

OWNER = "Ask the owner for access or for a copy."
ROOM = "Free some space there, or choose another place."
NAME = "Check the spelling of the name, or give another one."
PLACE = "Check that disk or device, or choose another place."
HINTS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), OWNER),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), ROOM),
    **dict.fromkeys((errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR), NAME),
    **dict.fromkeys((errno.EROFS, errno.EIO, errno.ESTALE, errno.ENXIO, errno.ENODEV), PLACE),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE), "Raise the limit: ulimit -n"),
}
"""What to do about an error of the system, by its number; all other errors are bugs in perfwrap."""
NEED_A_FILE = frozenset(HINTS) - {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
}
"""Errors that the user can fix only if they name a file; without a file they are bugs in perfwrap."""
MAX_NAME = 200
"""Characters of a file's name in a message."""

SUMMARY = "Find out why a PyTorch training command is slow, without changing it."
EXAMPLES = f"""{SUMMARY}

  perfwrap demo                      profile and fix a slow example
  perfwrap run -- python train.py    profile your own training
  perfwrap fix -- python train.py    write a patch that is proven to be faster

All commands: perfwrap --help"""
"""What is printed without any words."""

app = typer.Typer(
    name="perfwrap",
    cls=CommandGroup,
    help=SUMMARY,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_placeholders(app)


@app.callback(invoke_without_command=True, help=SUMMARY)
def options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    """Handle the options that come before the command; without a command, print examples."""
    if version:
        say(f"perfwrap {__version__}", sys.stdout)
        raise typer.Exit()
    if context.invoked_subcommand is None:
        for line in EXAMPLES.splitlines():
            say(line, sys.stdout)


GARBAGE_THRESHOLD = 250_000
"""New objects between two collections: more than the imports and the reading of a short run create. With Python's
default of some 700 to 2,000, collections take a tenth of the CPU time of a report, and find nothing."""


def main() -> None:
    """Run the command line."""
    if sys.warnoptions or sys.flags.dev_mode or sys.flags.warn_default_encoding:
        warnings.simplefilter("ignore")  # The variables that ask for warnings are those of the command.
    gc.set_threshold(GARBAGE_THRESHOLD)
    # Else the interpreter searches all objects for garbage several times before it exits, 0.1 s after a report.
    atexit.register(gc.freeze)
    os.environ.update(without_tool(os.environ))
    with StandardStreams(USAGE_ERROR):
        _main()


def _main() -> None:
    """Run the command line; print errors that the user can fix as a message and a hint."""
    try:
        app()
    except PerfwrapError as error:
        _fail(error.message, error.hint)
    except OSError as error:
        if _is_directory_gone():
            _fail(DELETED, ELSEWHERE)
        if error.errno not in HINTS or (error.filename is None and error.errno in NEED_A_FILE):
            raise
        file = error.filename
        name = _shortened(os.fsdecode(file)) if isinstance(file, (str, bytes)) else "a file"
        _fail(f"{name}: {error.strerror}.", HINTS[error.errno])


def _fail(message: str, hint: str) -> NoReturn:
    """Print what happened and what to do, and exit."""
    say(f"perfwrap: {message}")
    if hint:
        say(f"  {hint}")
    if _is_directory_gone() and message != DELETED:
        say(f"  {DELETED} {ELSEWHERE}")
    sys.exit(USAGE_ERROR)


def _shortened(name: str) -> str:
    """Return a name that fits on a screen."""
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME // 2]}…{name[-MAX_NAME // 2 :]}"


def _is_directory_gone() -> bool:
    """Return whether the current directory has been deleted."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False

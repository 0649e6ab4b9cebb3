"""What ``try``, ``fix`` and ``inspect`` have in common: options, and the commands that they can run several times."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from perfwrap.errors import PerfwrapError
from perfwrap.launch import environment, process

INTERRUPTED = 130
"""Exit code, as that of a shell, after Ctrl-C before anything was measured."""
DEFAULT_STEPS, DEFAULT_TIMEOUT_S = 50, 600.0

WarmUp = Annotated[
    str, typer.Option(metavar="N", help="Steps before those; auto: until the step time is steady.")
]
Repeats = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=20,
        help="Runs of each change.",
        show_default="until the result is clear",
    ),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="Maximum duration of a run.")]
AllowWrites = Annotated[
    bool,
    typer.Option(
        "--allow-writes", help="Let the program write checkpoints; by default torch.save writes nothing."
    ),
]


def check_command(command: list[str], example: str) -> None:
    """Raise PerfwrapError if the command cannot be measured."""
    if not command:
        raise PerfwrapError("No command was given.", f"For example: {example}")
    if process.find(command[0], os.environ) is None:
        raise PerfwrapError(
            f"The command {command[0]!r} was not found.",
            f"Put -- before the command: {example}",
        )
    if environment.is_off(os.environ) or environment.outer_run(os.environ) is not None:
        raise PerfwrapError(
            "perfwrap is disabled by PERFWRAP_OFF, or is already recording this process.",
            "Run this command on its own, without PERFWRAP_OFF.",
        )
    if _comes_from_stdin(command):
        raise PerfwrapError(
            "The program comes from standard input, which the runs of it cannot share.",
            "Write it to a file first, and name the file in the command.",
        )


def _comes_from_stdin(command: list[str]) -> bool:
    """Return whether a Python reads its program from standard input."""
    if not Path(command[0]).name.startswith("python"):
        return False
    words = iter(command[1:])
    for word in words:
        if word in ("-h", "-V") or word.startswith("--"):
            return False
        if word in ("-W", "-X"):
            next(words, None)
        elif word == "-" or not word.startswith("-"):
            return word == "-"
        elif word[1] in "cm" or word[-1] in "cm" and word[1] not in "WX":
            return False
    return True


def let_signals_interrupt() -> None:
    """Let SIGTERM and SIGHUP act as Ctrl-C: the current run has its own session and would outlive this process."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)

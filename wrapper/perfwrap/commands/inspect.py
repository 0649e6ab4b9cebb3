"""Show what each line of a training step costs, and which of its work is wasted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfwrap import run_folder
from perfwrap.commands.options import recording_options as record
from perfwrap.commands.options.trial_options import (
    DEFAULT_TIMEOUT_S,
    INTERRUPTED,
    AllowWrites,
    Timeout,
    check_command,
    let_signals_interrupt,
)
from perfwrap.commands.run_report import show
from perfwrap.commands.try_progress import TryProgress
from perfwrap.experiments.reading import read, read_timeline
from perfwrap.experiments.runner import Settings, run_once
from perfwrap.experiments.trial import Run
from perfwrap.measures.dataflow.wasted_work import find_obstacle
from perfwrap.run_folder import RunFolder
from perfwrap.shown_text import say

NOT_INSPECTED = 1
"""Exit code if the program made no steps that could be inspected."""

NAME = "inspect"
STEPS = 30
"""Steps after the warm-up; the windows are among them."""

InspectOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for the run; must be new or empty.",
        show_default="perfwrap-runs/<UTC time>-inspect-<name>",
    ),
]


def inspect(
    command: record.Command = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    allow_writes: AllowWrites = False,
    out: InspectOut = None,
) -> None:
    """Show what each line of a step costs, and which work is wasted.

    The unmodified program runs until its steps are steady. Then perfwrap records every tensor operation of three steps,
    twice, and ends the program. Wasted work is reported only if these steps prove it. Exit code 1: the program made no
    steps that could be inspected.
    """
    check_command(command or [], "perfwrap inspect -- python train.py")
    command = list(command or ())
    folder = run_folder.create_parent(out, f"{NAME}-{run_folder.stem(command)}")
    let_signals_interrupt()
    settings = Settings(STEPS, "auto", 0.0, timeout, allow_writes, inspect=True)
    with TryProgress(sys.stderr) as progress:
        progress.begins(NAME, 1)
        ended = run_once(command, (), folder / NAME, settings, progress.ticks, timeout)
        timeline = read_timeline(ended.run)
        reading = read(ended, (), timeline)
        progress.ends(Run(NAME, ended.folder, reading, ended.wall_s))
    if reading.status != "measured" or timeline is None:
        say(f"perfwrap: the program could not be inspected: {reading.reason or reading.status}.")
        say(f"  Its output: {ended.folder / 'stdout.txt'} and {ended.folder / 'stderr.txt'}")
        raise typer.Exit(INTERRUPTED if reading.status == "interrupted" else NOT_INSPECTED)
    if reading.end:
        _note_end(ended.run)
    show(ended.folder / "run")
    if not timeline.operation_windows:
        say(f"perfwrap: {find_obstacle(timeline) or 'No operations were recorded: no step was seen.'}")
        raise typer.Exit(NOT_INSPECTED)


def _note_end(run: RunFolder) -> None:
    """Note that perfwrap ended the command: a program that catches Ctrl-C may exit with any code."""
    manifest = run.read_manifest()
    if isinstance(manifest.get("exit"), dict):
        run.write_manifest({**manifest, "exit": {**manifest["exit"], "after_trial": True}})

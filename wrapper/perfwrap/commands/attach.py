"""Watch a job that is already running, from outside, and report what can be seen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfwrap.commands import reading_half
from perfwrap.commands.options import stacks
from perfwrap.commands.options.option_values import words
from perfwrap.commands.options.recording_options import (
    Name,
    NoReport,
    Out,
    PySpyNative,
    PySpyRate,
    Rate,
    Tags,
)
from perfwrap.launch import attached_job
from perfwrap.launch.options import Options
from perfwrap.monitor_options import DEFAULT_PY_SPY_HZ, DEFAULT_RATE_HZ
from perfwrap.shown_text import say


def attach(
    pid: Annotated[
        int, typer.Argument(help="The first process of the job: the training command, or torchrun.")
    ],
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="N", min=1, help="Stop after N seconds.", show_default="at Ctrl-C or when the job ends"
        ),
    ] = None,
    out: Out = None,
    name: Name = "",
    tags: Tags = "",
    rate: Rate = DEFAULT_RATE_HZ,
    py_spy_rate: PySpyRate = DEFAULT_PY_SPY_HZ,
    py_spy_native: PySpyNative = False,
    recorder: Annotated[
        bool,
        typer.Option(
            "--recorder",
            help="Load the recorder into the job, for steps and a verdict; Python 3.14 or later.",
        ),
    ] = False,
    no_report: NoReport = False,
    offer: Annotated[bool, typer.Option("--offer", hidden=True)] = False,
) -> None:
    """Watch a job that is already running, without restarting it.

    Records its processes, their stacks (with py-spy), the host and the GPUs. The job is not changed and continues when
    perfwrap stops. Steps and waits are known only with the recorder: start the job with `perfwrap run`, or, on Python
    3.14 or later, use --recorder, which replaces functions of PyTorch in the job and restores them at the end.
    """
    job = attached_job.find_job(pid)
    options = Options(
        out=out,
        name=name.strip(),
        tags=tuple(dict.fromkeys(words(tags))),
        rate_hz=rate,
        report=not no_report,
    )
    options = stacks.of_running_job(options, pid, py_spy_rate, py_spy_native, say)
    until = "" if seconds is None else f" for {seconds:g} s"
    say(f"perfwrap: watching process {pid}{until}; Ctrl-C stops perfwrap, the job continues")
    folder = attached_job.watch(
        job,
        options,
        seconds,
        recorder,
        lambda message: say(f"perfwrap: {message}"),
        # A notebook's kernel reads these lines.
        _offer if offer else None,
    )
    if no_report:
        say(f"perfwrap: recorded in {folder}. To print the report: perfwrap report {folder}")
    else:
        reading_half.print_report(folder)


def _offer(script: Path, run: Path) -> None:
    """Print the paths that a notebook's kernel reads."""
    for path in (script, run):
        say(str(path), sys.stdout)

"""Watch a job that runs already, from outside, and say what can be seen there."""

from __future__ import annotations

from typing import Annotated

import typer

from perfwrap.commands import run as run_command
from perfwrap.commands import stacks
from perfwrap.commands.output_options import words
from perfwrap.commands.recording_options import Name, NoReport, Out, PySpyNative, PySpyRate, Rate, Tags
from perfwrap.launch import attached
from perfwrap.launch.options import DEFAULT_PY_SPY_HZ, DEFAULT_RATE_HZ, Options
from perfwrap.shown_text import say


def attach(
    pid: Annotated[int, typer.Argument(help="The job's first process: the training command, or torchrun.")],
    seconds: Annotated[
        float | None,
        typer.Option(metavar="N", min=1, help="How long to watch.", show_default="until Ctrl-C or its end"),
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
            help="Bring the recorder into the job, too, for its steps and a verdict; Python 3.14 and later.",
        ),
    ] = False,
    no_report: NoReport = False,
) -> None:
    """Watch a job that runs already: its processes, their stacks (py-spy), host and GPU.

    Nothing is changed in the job, and it goes on when the watching ends. Steps and waits are not known without the
    recorder: for a verdict start the job with `perfwrap run`. A job of Python 3.14 or later can be given the recorder
    while it runs: `--recorder` replaces functions of torch's in it, and puts them back when the watching ends.
    """
    job = attached.find_job(pid)
    options = Options(
        out=out,
        name=name.strip(),
        tags=tuple(dict.fromkeys(words(tags))),
        rate_hz=rate,
        report=not no_report,
    )
    options = stacks.of_running_job(options, pid, py_spy_rate, py_spy_native, say)
    until = "" if seconds is None else f" for {seconds:g} s"
    say(f"perfwrap: watching process {pid}{until}; Ctrl-C ends that and leaves the job alone")
    folder = attached.watch(job, options, seconds, recorder, lambda words: say(f"perfwrap: {words}"))
    if no_report:
        say(f"perfwrap: recorded in {folder}; `perfwrap report {folder}` reads it")
    else:
        run_command.report(folder)

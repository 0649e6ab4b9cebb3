"""Measure what changes would bring, without editing the program."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from perfwrap import run_folder, units
from perfwrap.commands.options.option_values import percentage
from perfwrap.commands.options.option_values import warm_up as checked_warm_up
from perfwrap.commands.options.trial_options import (
    DEFAULT_STEPS,
    DEFAULT_TIMEOUT_S,
    INTERRUPTED,
    AllowWrites,
    Repeats,
    Timeout,
    WarmUp,
    check_command,
    let_signals_interrupt,
)
from perfwrap.commands.run_report import write_trial_page
from perfwrap.commands.try_progress import TryProgress
from perfwrap.errors import PerfwrapError
from perfwrap.experiments import batch_size, judge, plan, repeated_runs
from perfwrap.experiments.edits import edit_for
from perfwrap.experiments.plan import Planned
from perfwrap.experiments.runner import Settings
from perfwrap.experiments.trial import Trial, watched
from perfwrap.experiments.written import Written
from perfwrap.launch import host, process
from perfwrap.reports import trial_json
from perfwrap.reports.terminal import trial_text as trial_report
from perfwrap.reports.terminal.page import Page

BASELINE_FAILED = 1
"""Exit code if the unchanged program has no steps that could be measured."""
DEFAULT_MAX_TIME_S = 300.0

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CHANGE...] -- CMD...",
        help="Changes to measure, e.g. workers=4 pin-memory bf16+compile, then -- and the training command.",
        show_default=False,
    ),
]
Preset = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="A set of changes: three-run, workers, compile or memory.", show_default=False
    ),
]
FindBatchSize = Annotated[
    bool, typer.Option("--find-batch-size", help="Search for the largest batch that fits into memory.")
]
Steps = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=5,
        help="Steady steps to measure in each run.",
        show_default=f"{DEFAULT_STEPS}, {batch_size.STEPS} with --find-batch-size",
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="PERCENT", help="End a run early when its median step time is known to this precision."
    ),
]
MaxTime = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        min=1,
        help="Time for all runs together, without --repeats; each change runs at least once.",
        show_default=f"{DEFAULT_MAX_TIME_S:.0f}; to find the batch size on a CPU {batch_size.CPU_SECONDS:.0f}, "
        f"on a GPU {batch_size.GPU_SECONDS:.0f}",
    ),
]
TryOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Folder for all runs; must be new or empty.",
        show_default="perfwrap-runs/<UTC time>-try-<name>",
    ),
]


def try_(
    words: Words = None,
    preset: Preset = "",
    find_batch_size: FindBatchSize = False,
    steps: Steps = None,
    warm_up: WarmUp = "auto",
    precision: Precision = "2%",
    repeats: Repeats = None,
    max_time: MaxTime = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    allow_writes: AllowWrites = False,
    out: TryOut = None,
) -> None:
    """Measure what changes would bring, without editing the program.

    Runs with a change alternate with runs of the unchanged program, until the result of each change is clear or
    --max-time is over; each run ends after some steady steps. Without CHANGE, the changes that the diagnosis suggests
    are measured. Your files are not edited; the edit to make is printed. Exit code 1: the unchanged program could not
    be measured.
    """
    changes, command = _separated(words or [])
    check_command(command, "perfwrap try workers=4 -- python train.py")
    planned = _planned(changes, preset, find_batch_size)
    settings = Settings(
        steps or (batch_size.STEPS if find_batch_size else DEFAULT_STEPS),
        checked_warm_up("--warm-up", warm_up),
        percentage("--precision", precision, 0, 99, "2%"),
        timeout,
        allow_writes,
    )
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    folder = run_folder.create_parent(out, f"try-{Path((scripts or command)[0]).stem}")
    let_signals_interrupt()
    began_s = time.monotonic()
    with TryProgress(sys.stderr) as progress:
        trial = Trial(command, folder, settings, progress, is_brief=find_batch_size)
        written = watched(Path.cwd(), folder)
        try:
            if trial.start():
                if find_batch_size:
                    trial.found = batch_size.search(trial, began_s, max_time)
                else:
                    _measure(trial, planned, repeats, began_s + (max_time or DEFAULT_MAX_TIME_S))
        except KeyboardInterrupt:
            # Between two runs; the results so far are kept.
            trial.interrupted = True
    if not trial.runs:
        raise typer.Exit(INTERRUPTED)
    _show(trial, written())
    if trial.baseline.reading.status != "measured":
        raise typer.Exit(BASELINE_FAILED)


def _separated(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the changes and the command; without ``--`` between them, all words are the command.

    The command may contain ``--`` itself: if the first word is a program, all words are the command.
    """
    if "--" not in words or process.find(words[0], os.environ) is not None:
        return [], words
    place = words.index("--")
    changes = words[:place]
    late = next((word for word in changes if word.startswith("-")), None)
    if late is not None:
        raise PerfwrapError(
            f"The option {late} must come before the changes.",
            f"For example: perfwrap try {shlex.join([*words[words.index(late) : place], *words[: words.index(late)]])} "
            f"-- {shlex.join(words[place + 1 :])}",
        )
    return changes, words[place + 1 :]


def _planned(changes: list[str], preset: str, find_batch_size: bool) -> tuple[Planned, ...] | None:
    """Return the changes to measure; None for those that the diagnosis suggests."""
    if bool(changes) + bool(preset) + find_batch_size > 1:
        raise PerfwrapError(
            "Changes, --preset and --find-batch-size exclude each other.",
            "Use one of them at a time.",
        )
    if preset:
        facts = host.facts()
        return plan.preset(
            preset, min(facts["cores_usable"], facts["cpu_quota_cores"] or facts["cores_usable"])
        )
    return plan.named(changes) if changes else None


def _measure(trial: Trial, planned: tuple[Planned, ...] | None, repeats: int | None, end_s: float) -> None:
    """Measure the changes, and then the fixes that were faster, combined."""
    if planned is None:
        planned = plan.suggested(trial.diagnosis.findings if trial.diagnosis is not None else ())
    if repeats is None and planned:
        trial.progress.says(
            "runs are repeated until each result is clear, for at most "
            f"{units.duration((end_s - time.monotonic()) * 1e9)} (--max-time)"
        )
    repeated_runs.measure(trial, planned, repeats, end_s)
    combined = judge.combination(judge.rows(trial.runs, trial.planned))
    if combined is not None and not trial.interrupted:
        repeated_runs.measure(trial, [plan.Planned(combined)], repeats, end_s)


def _show(trial: Trial, written: Written) -> None:
    """Print the results to standard output, and write them to files."""
    rows = tuple(
        replace(row, edit=edit_for(row.sites, Path.cwd(), trial.command))
        for row in judge.rows(trial.runs, trial.planned)
    )
    document = trial_json.section(trial, rows, written)
    trial_json.write(document, trial.folder)
    page = Page(sys.stdout)
    trial_report.draw(trial, rows, written, page)
    page.show()
    if trial.baseline.reading.status == "measured" and write_trial_page(
        trial.baseline.folder / "run", trial.folder / run_folder.REPORT, document
    ):
        page = Page(sys.stdout)
        page.line(("Report: ", ""), (str(trial.folder / run_folder.REPORT), "bold"))
        page.show()

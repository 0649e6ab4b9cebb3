"""Run the unmodified program with one change at a time, and say what each is worth."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.launch import environment, host, process

if TYPE_CHECKING:
    from perfwrap.experiments.plan import Planned
    from perfwrap.experiments.trial import Trial
    from perfwrap.experiments.written import Written

BASELINE_FAILED = 1
"""Exit code where the program by itself has no steps that could be measured."""
INTERRUPTED = 130
"""As a shell has it after Ctrl-C, where nothing had been measured yet."""
DEFAULT_STEPS, DEFAULT_TIMEOUT_S = 50, 600.0

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[CHANGE...] -- CMD...",
        help="What to try, for example workers=4 pin-memory bf16+compile, and behind -- the training command.",
        show_default=False,
    ),
]
Preset = Annotated[
    str, typer.Option(metavar="NAME", help="Try three-run, workers, compile or memory.", show_default=False)
]
FindBatchSize = Annotated[
    bool, typer.Option("--find-batch-size", help="Search for the largest batch that fits.")
]
Steps = Annotated[int, typer.Option(metavar="N", min=5, help="How many steady steps each run measures.")]
WarmUp = Annotated[
    str, typer.Option(metavar="N", help="How many steps come before those; auto is until they are steady.")
]
Precision = Annotated[
    str, typer.Option(metavar="PERCENT", help="A run ends earlier when its median step is known so well.")
]
Repeats = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=20,
        help="How often each change runs.",
        show_default="2 for up to 3 changes, else 1",
    ),
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=1, help="How long any run may take.")]
TryOut = Annotated[
    Path | None,
    typer.Option(
        "--out", help="A new folder for all runs.", show_default="perfwrap-runs/<UTC time>-try-<name>"
    ),
]
AllowWrites = Annotated[bool, typer.Option("--allow-writes", help="Let the program write its checkpoints.")]


def try_(
    words: Words = None,
    preset: Preset = "",
    find_batch_size: FindBatchSize = False,
    steps: Steps = DEFAULT_STEPS,
    warm_up: WarmUp = "auto",
    precision: Precision = "2%",
    repeats: Repeats = None,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
    allow_writes: AllowWrites = False,
    out: TryOut = None,
) -> None:
    """Run the unmodified program with one change at a time, and say what each is worth.

    Without names, what the diagnosis of the program suggests is tried. The program runs afresh for each change, in
    turns with itself unchanged, and leaves its loop after some steady steps. No file of it is changed: the edit to make
    is printed. Exit code 1 means that the program itself could not be measured.
    """
    changes, command = _apart(words or [])
    _refuse(command)
    # Imported here, not above: recording must start fast, and work where polars is missing.
    from perfwrap.commands.try_progress import TryProgress
    from perfwrap.experiments.runner import Settings
    from perfwrap.experiments.trial import Trial, watched

    planned = _planned(changes, preset, find_batch_size)
    settings = Settings(steps, _warm_up(warm_up), _share(precision), timeout, allow_writes)
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    folder = run_folder.create_parent(out, f"try-{Path((scripts or command)[0]).stem}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        # As Ctrl-C: the run under way has a session of its own and would outlive this process.
        signal.signal(number, signal.default_int_handler)
    with TryProgress(sys.stderr) as progress:
        trial = Trial(command, folder, settings, progress)
        written = watched(Path.cwd(), folder)
        try:
            if trial.start():
                _measure(trial, planned, find_batch_size, repeats)
        except KeyboardInterrupt:
            # Between the runs; what is known by then is kept.
            trial.interrupted = True
    if not trial.runs:
        raise typer.Exit(INTERRUPTED)
    _show(trial, written())
    if trial.baseline.reading.status != "measured":
        raise typer.Exit(BASELINE_FAILED)


def _apart(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the changes and the command; without ``--`` between them, all is command.

    The command may have such a word, too: what begins with a program is a command as a whole.
    """
    if "--" not in words or process.find(words[0], os.environ) is not None:
        return [], words
    place = words.index("--")
    changes = words[:place]
    late = next((word for word in changes if word.startswith("-")), None)
    if late is not None:
        raise PerfwrapError(
            f"The option {late} stands behind a change.",
            "Options come first: perfwrap try --steps 50 bf16 -- CMD",
        )
    return changes, words[place + 1 :]


def _refuse(command: list[str]) -> None:
    """Raise PerfwrapError where the command cannot be tried."""
    if not command:
        raise PerfwrapError(
            "There is no command to try.", "For example: perfwrap try workers=4 -- python train.py"
        )
    if process.find(command[0], os.environ) is None:
        raise PerfwrapError(
            f"There is no command {command[0]!r}.",
            "Changes come first, then -- and the command: perfwrap try workers=4 -- python train.py",
        )
    if environment.is_off(os.environ) or environment.outer_run(os.environ) is not None:
        raise PerfwrapError(
            "Nothing can be recorded here: perfwrap is switched off, or records already.",
            "Run `perfwrap try` by itself, without PERFWRAP_OFF.",
        )


def _planned(changes: list[str], preset: str, find_batch_size: bool) -> tuple[Planned, ...] | None:
    """Return what the user wants to be tried; None for what the diagnosis suggests."""
    from perfwrap.experiments import plan

    if bool(changes) + bool(preset) + find_batch_size > 1:
        raise PerfwrapError(
            "Names of changes, --preset and --find-batch-size exclude each other.",
            "Run them one after the other.",
        )
    if preset:
        facts = host.facts()
        return plan.preset(
            preset, min(facts["cores_usable"], facts["cpu_quota_cores"] or facts["cores_usable"])
        )
    return plan.named(changes) if changes else None


def _measure(
    trial: Trial, planned: tuple[Planned, ...] | None, find_batch_size: bool, repeats: int | None
) -> None:
    """Run what is to be tried, and then the fixes that gained, together."""
    from perfwrap.experiments import batch_size, judge, plan

    if trial.interrupted:
        return
    if find_batch_size:
        trial.found = batch_size.search(trial)
        return
    if planned is None:
        planned = plan.suggested(trial.diagnosis.findings if trial.diagnosis is not None else ())
    trial.measure(planned, repeats)
    together = judge.combination(judge.rows(trial.runs, trial.planned, Path.cwd()))
    if together is not None and not trial.interrupted:
        trial.measure([plan.Planned(together)], repeats)


def _show(trial: Trial, written: Written) -> None:
    """Print what was measured on standard output, and write it down."""
    from perfwrap.commands.report import write_html
    from perfwrap.experiments import judge
    from perfwrap.reports import trial as trial_report
    from perfwrap.reports import trial_json
    from perfwrap.reports.page import Page

    rows = judge.rows(trial.runs, trial.planned, Path.cwd())
    document = trial_json.section(trial, rows, written)
    trial_json.write(document, trial.folder)
    page = Page(sys.stdout)
    trial_report.draw(trial, rows, written, page)
    page.show()
    if trial.baseline.reading.status == "measured" and write_html(
        trial.baseline.folder / "run", trial.folder / run_folder.REPORT, document
    ):
        page = Page(sys.stdout)
        page.line(("Report: ", ""), (str(trial.folder / run_folder.REPORT), "bold"))
        page.show()


def _warm_up(asked: str) -> str:
    """Return how many steps come first; PerfwrapError for anything but a number or auto."""
    if asked != "auto" and not asked.isdigit():
        raise PerfwrapError(
            f"--warm-up takes a number of steps or auto, not {asked!r}.", "For example: --warm-up 20"
        )
    return asked


def _share(percent: str) -> float:
    """Return the share that a percentage is; PerfwrapError for anything else."""
    try:
        share = float(percent.strip().removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise PerfwrapError(
            f"--precision {percent!r} is no percentage below 100.", "For example: --precision 2%"
        )
    return share

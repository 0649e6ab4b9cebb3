"""Run a command unchanged, record it, and print what holds it back."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perfwrap.commands import stacks, watching
from perfwrap.commands.output_options import Ignore, Rules, words
from perfwrap.commands.recording_options import (
    AllowWrites,
    Budget,
    Change,
    Command,
    KillGrace,
    KillOnStall,
    MaxOverhead,
    MetricsAddress,
    MetricsPort,
    MetricsTokenFile,
    Name,
    Ncu,
    NcuFrom,
    NcuOptions,
    NoGlance,
    NoMonitors,
    NoReport,
    NoWindow,
    Nsys,
    NsysOptions,
    Nvtx,
    Out,
    PySpy,
    PySpyNative,
    PySpyRate,
    Rate,
    RunId,
    Sample,
    StallAfter,
    Tags,
    TrialPrecision,
    TrialSteps,
    TrialWarmUp,
    Window,
    WindowDetail,
    WindowRanks,
)
from perfwrap.errors import PerfwrapError
from perfwrap.experiments.changes import checked
from perfwrap.launch import ncu as ncu_tool
from perfwrap.launch import nsys as nsys_tool
from perfwrap.launch import prefixes, session
from perfwrap.launch.options import (
    DEFAULT_BUDGET_MIB,
    DEFAULT_GRACE_SECONDS,
    DEFAULT_MAX_OVERHEAD,
    DEFAULT_PY_SPY_HZ,
    DEFAULT_RATE_HZ,
    DEFAULT_STALL_SECONDS,
    DEFAULT_WINDOW,
    LOOPBACK,
    MEBIBYTE,
    WINDOW_DETAILS,
    Options,
    Trial,
    option_name,
)
from perfwrap.run_folder import RunFolder
from perfwrap.shown_text import say

if TYPE_CHECKING:
    from perfwrap.configuration import Choice

LEAST_OVERHEAD = 0.001


def run(
    command: Command = None,
    out: Out = None,
    name: Name = "",
    tags: Tags = "",
    run_id: RunId = "",
    nvtx: Nvtx = False,
    no_monitors: NoMonitors = False,
    rate: Rate = DEFAULT_RATE_HZ,
    sample: Sample = 0.0,
    py_spy: PySpy = False,
    py_spy_rate: PySpyRate = DEFAULT_PY_SPY_HZ,
    py_spy_native: PySpyNative = False,
    no_glance: NoGlance = False,
    max_overhead: MaxOverhead = f"{DEFAULT_MAX_OVERHEAD:.1%}",
    window: Window = DEFAULT_WINDOW,
    no_window: NoWindow = False,
    window_detail: WindowDetail = "",
    window_ranks: WindowRanks = "0",
    nsys: Nsys = False,
    nsys_options: NsysOptions = "",
    ncu: Ncu = False,
    ncu_options: NcuOptions = "",
    ncu_from: NcuFrom = None,
    stall_after: StallAfter = DEFAULT_STALL_SECONDS,
    kill_on_stall: KillOnStall = False,
    kill_grace: KillGrace = DEFAULT_GRACE_SECONDS,
    metrics_port: MetricsPort = 0,
    metrics_address: MetricsAddress = LOOPBACK,
    metrics_token_file: MetricsTokenFile = None,
    no_report: NoReport = False,
    rules: Rules = "",
    ignore: Ignore = "",
    budget: Budget = DEFAULT_BUDGET_MIB,
    change: Change = None,
    trial_steps: TrialSteps = 0,
    trial_warm_up: TrialWarmUp = "auto",
    trial_precision: TrialPrecision = 0.02,
    allow_writes: AllowWrites = False,
) -> None:
    """Run a command unchanged, record it, and print what holds it back.

    CMD is any command: python train.py, python -m package, torchrun …, accelerate launch …, a script.
    It keeps its input, output, signals and exit code; what perfwrap has to say goes to standard error.
    """
    if not command:
        raise PerfwrapError("There is no command to run.", "For example: perfwrap run -- python train.py")
    options = Options(
        out=out,
        name=name.strip(),
        tags=tuple(dict.fromkeys(words(tags))),
        run_id=run_id.strip(),
        nvtx=nvtx,
        monitors=not no_monitors,
        rate_hz=rate,
        report=not no_report,
        sample_hz=sample,
        max_overhead=_share(max_overhead),
        # A trial's steps must all be alike.
        window="" if no_window or trial_steps else _window(window),
        window_detail=_details(window_detail),
        window_ranks=_ranks(window_ranks),
        budget_bytes=budget * MEBIBYTE,
        trial=Trial(
            checked(change or ()), trial_steps, _warm_up(trial_warm_up), trial_precision, allow_writes
        ),
        nsys=_words(nsys_options, nsys_tool.OURS) if nsys else None,
        ncu=_words(ncu_options, ncu_tool.OURS) if ncu else None,
    )
    options = watching.with_stalls(options, stall_after, kill_on_stall, kill_grace)
    options = watching.with_metrics(options, metrics_port, metrics_address, metrics_token_file)
    if py_spy or py_spy_native:
        options = stacks.with_py_spy(options, py_spy_rate, py_spy_native, say)
    elif not sample and not no_glance:
        options = stacks.with_glance(options)
    if options.ncu is not None and not ncu_tool.names_kernels(options.ncu):
        prefixes.choose(options, os.environ)  # Where ncu is missing, that comes first.
        options = replace(options, ncu_kernels=_kernels(ncu_from))
    if rules or ignore:
        _choice(rules, ignore)  # What is wrong with it is said before the run, not after.
    session.run(command, options, say, partial(report, rules=rules, ignore=ignore))


def _choice(rules: str, ignore: str) -> Choice:
    """Return which rules shall be asked; PerfwrapError for names that there are not."""
    # Only here: recording needs none of the reading half's libraries.
    from perfwrap.commands.report import choose

    return choose(rules, ignore)


def _share(percent: str) -> float:
    """Return the share that a percentage is, with or without its sign; PerfwrapError for anything else."""
    try:
        share = float(percent.strip().removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not LEAST_OVERHEAD <= share <= 1:
        raise PerfwrapError(
            f"--max-overhead {percent!r} is no percentage from 0.1 to 100.", "For example: --max-overhead 2%"
        )
    return share


def _window(asked: str) -> str:
    """Return the steps that were asked for; PerfwrapError where that says none."""
    if asked not in ("auto", "steady", "worst") and not re.fullmatch(r"[1-9][0-9]{0,3}@[0-9]{1,12}", asked):
        raise PerfwrapError(
            f"--window {asked!r} names no steps.",
            "Say auto, steady, worst, or how many steps after which, for example: --window 5@100",
        )
    return asked


def _details(asked: str) -> tuple[str, ...]:
    """Return the details that were asked for; PerfwrapError for one that is unknown."""
    words = tuple(dict.fromkeys(word.strip().removesuffix("s") for word in asked.split(",") if word.strip()))
    known = {word.removesuffix("s"): word for word in WINDOW_DETAILS}
    for word in words:
        if word not in known:
            raise PerfwrapError(
                f"--window-detail knows nothing of {word!r}.",
                f"It takes any of {', '.join(WINDOW_DETAILS)}, joined by commas.",
            )
    return tuple(known[word] for word in words)


def _ranks(asked: str) -> str:
    """Return which ranks were asked for; PerfwrapError for anything but one or all."""
    if asked not in ("0", "all"):
        raise PerfwrapError(
            f"--window-ranks takes 0 or all, not {asked!r}.", "For example: --window-ranks all"
        )
    return asked


def _warm_up(asked: str) -> str:
    """Return how many steps come first; PerfwrapError for anything but a number or auto."""
    if asked != "auto" and not re.fullmatch("[0-9]{1,9}", asked):
        raise PerfwrapError(
            f"--trial-warm-up takes a number of steps or auto, not {asked!r}.",
            "For example: --trial-warm-up 20",
        )
    return asked


def _words(options: str, ours: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options of a tool one by one; PerfwrapError for one that perfwrap sets itself."""
    try:
        words = tuple(shlex.split(options))
    except ValueError as error:
        raise PerfwrapError(
            f"The options {options!r} cannot be taken apart: {error}.", "Look at their quotes."
        ) from error
    for word in words:
        if not word.startswith("-"):
            raise PerfwrapError(
                f"{word!r} is no option of the tool.",
                "Join options and their values: --name=value, or -nvalue.",
            )
        if option_name(word) in ours:
            raise PerfwrapError(f"perfwrap sets {option_name(word)} itself.", "Leave that option out.")
    return words


def _kernels(earlier: Path | None) -> tuple[str, ...]:
    """Return the functions that took longest on the GPU in an earlier run; PerfwrapError where none is known."""
    # Only here: recording without --ncu needs none of the reading half's libraries.
    from perfwrap.commands.top_kernels import top_kernels

    return top_kernels(earlier)


def report(folder: Path, rules: str = "", ignore: str = "") -> None:
    """Print the report of a run; where it cannot be made, say why and where the run is."""
    try:
        # Only here, after the command: recording needs none of the reading half's libraries.
        from perfwrap.commands.joined import end_part, has_many_ranks
        from perfwrap.commands.report import report_run

        if (whole := end_part(folder)) is None:
            return  # Another launcher of the same run shows the report.
        folder = whole
        if has_many_ranks(RunFolder(folder)):
            # The other launchers are still at work on their tables: nobody waits for them here.
            say(f"perfwrap: a run of many launchers; `perfwrap report {folder}` reads it once all have ended")
            return
        if rules or ignore:
            report_run(folder, _choice(rules, ignore))
        else:
            report_run(folder)
    except (ImportError, PerfwrapError) as error:
        say(f"perfwrap: no report: {error}; the run is in {folder}, `perfwrap report {folder}` tries again")
    except Exception as error:  # noqa: BLE001 - whoever called may leave without a traceback: it must be said here
        say(
            f"perfwrap: the report broke off: {type(error).__name__}: {error}; that is a defect of perfwrap's, please "
            f"report it with the run folder: {folder}"
        )

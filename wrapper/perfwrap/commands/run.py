"""Run a command unchanged, record it, and print what holds it back."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from perfwrap.commands import stacks
from perfwrap.errors import PerfwrapError
from perfwrap.launch import ncu as ncu_tool
from perfwrap.launch import nsys as nsys_tool
from perfwrap.launch import prefixes, session
from perfwrap.launch.options import (
    DEFAULT_BUDGET_MIB,
    DEFAULT_MAX_OVERHEAD,
    DEFAULT_PY_SPY_HZ,
    DEFAULT_RATE_HZ,
    DEFAULT_WINDOW,
    MEBIBYTE,
    WINDOW_DETAILS,
    Options,
    option_name,
)

LEAST_OVERHEAD = 0.001


def run(
    command: Annotated[list[str] | None, typer.Argument(metavar="[--] CMD...", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder; a new or empty one.", show_default="perfwrap_runs/<UTC time>-<name>"
        ),
    ] = None,
    nvtx: Annotated[
        bool, typer.Option("--nvtx", help="Push NVTX ranges even where no tool listens.")
    ] = False,
    no_monitors: Annotated[bool, typer.Option("--no-monitors", help="Do not watch host and GPU.")] = False,
    rate: Annotated[
        float, typer.Option(metavar="HZ", min=0.1, max=100, help="How often to look at host and GPU.")
    ] = DEFAULT_RATE_HZ,
    sample: Annotated[
        float,
        typer.Option(
            metavar="HZ",
            min=0,
            max=200,
            help="How often to sample the program's lines from a thread inside; 20 is enough, 0 is never.",
        ),
    ] = 0.0,
    py_spy: Annotated[
        bool,
        typer.Option("--py-spy", help="Have py-spy sample stacks of the training processes from outside."),
    ] = False,
    py_spy_rate: Annotated[
        float, typer.Option(metavar="HZ", min=10, max=200, help="How often py-spy samples.")
    ] = DEFAULT_PY_SPY_HZ,
    py_spy_native: Annotated[
        bool,
        typer.Option(
            "--py-spy-native",
            help="Have py-spy sample compiled code, too; it stops the program for each sample.",
        ),
    ] = False,
    max_overhead: Annotated[
        str,
        typer.Option(
            metavar="PERCENT",
            help="What detail may cost of the steps' time; steps that would cost more are only counted.",
        ),
    ] = f"{DEFAULT_MAX_OVERHEAD:.1%}",
    window: Annotated[
        str,
        typer.Option(
            metavar="STEPS",
            help="The steps that PyTorch's profiler watches: steady takes 3 once they are steady, auto the "
            "same where a GPU is used, 5@100 takes 5 after 100, worst the slowest of 100.",
        ),
    ] = DEFAULT_WINDOW,
    no_window: Annotated[bool, typer.Option("--no-window", help="Do not use PyTorch's profiler.")] = False,
    window_detail: Annotated[
        str,
        typer.Option(
            metavar="WORDS",
            show_default="none",
            help="What it notes beside: shapes, stack, memory, flops, joined by commas. Each costs more.",
        ),
    ] = "",
    window_ranks: Annotated[
        str, typer.Option(metavar="RANKS", help="Which ranks it watches: 0, or all at the same steps.")
    ] = "0",
    nsys: Annotated[
        bool,
        typer.Option(
            "--nsys",
            help="Have Nsight Systems watch some steps; --nsys='OPTIONS' passes more options to nsys profile.",
        ),
    ] = False,
    nsys_options: Annotated[str, typer.Option("--nsys-options", hidden=True)] = "",
    ncu: Annotated[
        bool,
        typer.Option(
            "--ncu",
            help="Have Nsight Compute measure the kernels that took longest in an earlier run; "
            "--ncu='OPTIONS' passes more options to ncu.",
        ),
    ] = False,
    ncu_options: Annotated[str, typer.Option("--ncu-options", hidden=True)] = "",
    ncu_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="The earlier run that says which kernels.",
            show_default="the latest one with kernels",
        ),
    ] = None,
    no_report: Annotated[
        bool, typer.Option("--no-report", help="Only record; `perfwrap report` reads it later.")
    ] = False,
    budget: Annotated[
        int, typer.Option(metavar="MIB", min=1, help="How large each process's journal may become.")
    ] = DEFAULT_BUDGET_MIB,
) -> None:
    """Run a command unchanged, record it, and print what holds it back.

    CMD is any command: python train.py, python -m package, torchrun …, accelerate launch …, a script.
    It keeps its input, output, signals and exit code; what perfwrap has to say goes to standard error.
    """
    if not command:
        raise PerfwrapError("There is no command to run.", "For example: perfwrap run -- python train.py")
    options = Options(
        out=out,
        nvtx=nvtx,
        monitors=not no_monitors,
        rate_hz=rate,
        report=not no_report,
        sample_hz=sample,
        max_overhead=_share(max_overhead),
        window="" if no_window else _window(window),
        window_detail=_details(window_detail),
        window_ranks=_ranks(window_ranks),
        budget_bytes=budget * MEBIBYTE,
        nsys=_words(nsys_options, nsys_tool.OURS) if nsys else None,
        ncu=_words(ncu_options, ncu_tool.OURS) if ncu else None,
    )
    if py_spy or py_spy_native:
        options = stacks.with_py_spy(options, py_spy_rate, py_spy_native, say)
    if options.ncu is not None and not ncu_tool.names_kernels(options.ncu):
        prefixes.choose(options, os.environ)  # Where ncu is missing, that comes first.
        options = replace(options, ncu_kernels=_kernels(ncu_from))
    session.run(command, options, say, report)


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
        raise PerfwrapError(f"--window-ranks takes 0 or all, not {asked!r}.", "")
    return asked


def _words(options: str, ours: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options of a tool one by one; PerfwrapError for one that perfwrap sets itself."""
    try:
        words = tuple(shlex.split(options))
    except ValueError as error:
        raise PerfwrapError(f"The options {options!r} cannot be taken apart: {error}.") from error
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


def say(line: str) -> None:
    """Print one line for the user, where there is somebody to read it."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        return


def report(folder: Path) -> None:
    """Print the report of a run; where it cannot be made, say why and where the run is."""
    try:
        # Only here, after the command: recording needs none of the reading half's libraries.
        from perfwrap.commands.report import report_run

        report_run(folder)
    except (ImportError, PerfwrapError) as error:
        say(f"perfwrap: no report: {error}; the run is in {folder}, `perfwrap report {folder}` tries again")

"""Show a running job live in the terminal: what slows it down so far, and its progress."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from perfwrap import run_folder
from perfwrap.analysis import run_names
from perfwrap.commands.keys import Keys
from perfwrap.commands.options.output_options import RUN_HELP
from perfwrap.errors import PerfwrapError
from perfwrap.live.pace import Pace
from perfwrap.live.watch import Watch
from perfwrap.reports.terminal import top_screen as drawing
from perfwrap.reports.terminal.page import Page
from perfwrap.run_folder import RunFolder

POLL_SECONDS = 0.2
"""Time between two checks of the keyboard and the terminal's size."""
DRAWING_SHARE = 0.01
"""The maximum share of one core for drawing."""
FOOT = "q quits"


def top(
    run: Annotated[
        str | None,
        typer.Argument(
            help=RUN_HELP, show_default="the newest run in perfwrap-runs", autocompletion=run_names.complete
        ),
    ] = None,
    beside: Annotated[bool, typer.Option("--beside", hidden=True)] = False,
) -> None:
    """Show a running job live in the terminal.

    Shows the verdict so far, how the time of the whole run and of the training loop divides, the costliest lines, step
    times, GPUs and processes. Only the run folder is read, so this works from another
    terminal or over ssh, and cannot disturb the job. Press q to quit; when the job ends, the final state is printed.
    If the output is not a terminal, the current state is printed once.
    """
    folder = _folder(run)
    watch = Watch(RunFolder(folder))
    console = Console(file=sys.stdout, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        _show_live(watch, folder, console, "" if beside else FOOT)
    else:
        watch.step()
    if beside:
        return  # `perfwrap run --live` prints the report now.
    if watch.over:
        watch.conclude()
    _print(watch, folder)


def _folder(run: str | None) -> Path:
    """Return the folder of the run; PerfwrapError if there is none."""
    if run is None:
        if not run_names.here():
            raise PerfwrapError(
                f"There is no run in {run_folder.RUNS}.",
                "Give the run folder, or start a run: perfwrap run -- python train.py",
            )
        return run_names.find(run_names.LATEST)
    return run_names.find(str(run))


def _print(watch: Watch, folder: Path) -> None:
    """Print the state of the run once."""
    page = Page(sys.stdout)
    scene = watch.scene()
    drawing.draw(scene, folder, page)
    if watch.over and scene.view.recent_steps is not None:
        page.line(("Full report: ", ""), (f"perfwrap report {shlex.quote(str(folder))}", "bold"))
    page.show()


def _show_live(watch: Watch, folder: Path, console: Console, foot: str) -> None:
    """Redraw the run until it ends or the user quits."""

    def picture() -> Text:
        """Return the current screen."""
        page = Page(sys.stdout, width=console.width)
        drawing.draw(watch.scene(), folder, page, console.height, foot)
        return Text.from_ansi(page.text().removesuffix("\n"), no_wrap=True, overflow="crop")

    pace, size = Pace(DRAWING_SHARE), None
    with Keys(sys.stdin) as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while not watch.over:
            watch.step()
            now = time.monotonic_ns()
            if pace.is_due(now) or console.size != size:
                size = console.size
                pace.run(now, lambda: live.update(picture(), refresh=True))
            if keys.asks_to_quit(POLL_SECONDS):
                return
            if keys.asks_to_stop:
                live.stop()
                keys.stop()
                live.start()
                size = None

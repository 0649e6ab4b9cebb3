"""Show a running job live in the terminal: what holds it back so far, and how far it is."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfwrap import run_folder
from perfwrap.commands import runs
from perfwrap.commands.output_options import RUN_HELP
from perfwrap.errors import PerfwrapError
from perfwrap.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.console import Console

    from perfwrap.live.watch import Watch

GLANCE_SECONDS = 0.2
"""How often keys and the terminal's size are looked at."""
DRAWING_SHARE = 0.01
"""How much of one core drawing may take."""
FOOT = "q quits"


def top(
    run: Annotated[
        str | None,
        typer.Argument(
            help=RUN_HELP, show_default="the newest below perfwrap-runs", autocompletion=runs.complete
        ),
    ] = None,
) -> None:
    """Show a running job live in the terminal: the verdict so far, step times, GPUs, processes.

    Reads the run folder only, so it works from another terminal, over ssh, and cannot disturb the job.
    When the job ends it shows the final figures and leaves; q leaves earlier. Without a terminal it prints
    how the run stands and leaves at once.
    """
    # Imported here, not above: all commands are loaded together, and `run` must start fast.
    from rich.console import Console

    from perfwrap.live.watch import Watch

    folder = _folder(run)
    watch = Watch(RunFolder(folder))
    console = Console(file=sys.stdout, highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        _show_live(watch, folder, console)
    else:
        watch.step()
    if watch.over:
        watch.conclude()
    _print(watch, folder)


def _folder(run: str | None) -> Path:
    """Return the folder that is meant; PerfwrapError when there is none."""
    if run is None:
        if not runs.here():
            raise PerfwrapError(
                f"There is no run below {run_folder.RUNS} here.",
                "Name the run folder, or start a run: perfwrap run -- python train.py",
            )
        return runs.find(runs.LATEST)
    return runs.find(str(run))


def _print(watch: Watch, folder: Path) -> None:
    """Print how the run stands, as plain lines that stay."""
    # Imported here, not above: all commands are loaded together, and `run` must start fast.
    from perfwrap.reports import top as drawing
    from perfwrap.reports.page import Page

    page = Page(sys.stdout)
    scene = watch.scene()
    drawing.draw(scene, folder, page)
    if watch.over and scene.view.recent_steps is not None:
        page.line(("The whole run: ", ""), (f"perfwrap report {shlex.quote(str(folder))}", "bold"))
    page.show()


def _show_live(watch: Watch, folder: Path, console: Console) -> None:
    """Draw the run again and again, until it ends or the user has seen enough."""
    # Imported here, not above: all commands are loaded together, and `run` must start fast.
    import time

    from rich.live import Live
    from rich.text import Text

    from perfwrap.commands.keys import Keys
    from perfwrap.live.pace import Pace
    from perfwrap.reports import top as drawing
    from perfwrap.reports.page import Page

    def picture() -> Text:
        """Return the screen as it is now; drawn by the same page as a report."""
        page = Page(sys.stdout, width=console.width)
        drawing.draw(watch.scene(), folder, page, console.height, FOOT)
        return Text.from_ansi(page.text().removesuffix("\n"), no_wrap=True, overflow="crop")

    pace, size = Pace(DRAWING_SHARE), None
    with Keys(sys.stdin) as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while not watch.over:
            watch.step()
            now = time.monotonic_ns()
            if pace.is_due(now) or console.size != size:
                size = console.size
                pace.run(now, lambda: live.update(picture(), refresh=True))
            if keys.asks_to_quit(GLANCE_SECONDS):
                return
            if keys.asks_to_stop:
                live.stop()
                keys.stop()
                live.start()
                size = None

"""Progress of a trial: a moving line in a terminal, and a line for each finished run."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from perfwrap import units
from perfwrap.experiments.trial import Run
from perfwrap.shown_text import visible

REFRESH_PER_SECOND = 2
"""The display uses CPU time that the measured program could use; twice a second has no measurable effect."""


class TryProgress:
    """Shows the current run, its time and the number of runs; the result of each run stays on the screen."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._status: Status | None = None
        self._what = ""

    def __enter__(self) -> TryProgress:
        """Start without output."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the moving line."""
        self._stop()

    def says(self, text: str) -> None:
        """Print a line."""
        self._console.print(f"perfwrap: {escape(visible(text))}", soft_wrap=True)

    def begins(self, name: str, number: int) -> None:
        """Show that a run begins."""
        self._what = f"run {number}: {escape(visible(name))}"
        if self._console.is_terminal:
            self._status = self._console.status(self._what, refresh_per_second=REFRESH_PER_SECOND)
            self._status.start()

    def ticks(self, seconds: float) -> None:
        """Show how long the run has taken."""
        if self._status is not None:
            self._status.update(f"{self._what}, {units.duration(int(seconds) * 1e9)}")

    def ends(self, run: Run) -> None:
        """Print the result of the run."""
        self._stop()
        reading = run.reading
        result = reading.status if reading.status != "measured" else self._result(run)
        self._console.print(f"perfwrap: {self._what}: {escape(visible(result))}", soft_wrap=True)

    def _result(self, run: Run) -> str:
        """Return the result of a measured run."""
        durations = run.reading.steps.duration_ns
        mean = float(durations.mean()) if durations.size else None
        steps = f"{units.counted(durations.size, 'step')} of {units.duration(mean, 3)}"
        return f"{steps}, in {units.duration(run.wall_s * 1e9)}"

    def stops(self) -> None:
        """End the moving line of a run without a result of its own."""
        self._stop()

    def _stop(self) -> None:
        """Remove the moving line."""
        if self._status is not None:
            self._status.stop()
            self._status = None

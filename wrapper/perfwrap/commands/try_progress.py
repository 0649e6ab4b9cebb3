"""How far a trial is: a line that moves in a terminal, a line for each finished run elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from perfwrap import units
from perfwrap.shown_text import visible

if TYPE_CHECKING:
    from types import TracebackType

    from perfwrap.experiments.trial import Run

REFRESH_PER_SECOND = 2
"""The display takes processor time from what is being measured; twice a second nobody can measure."""


class TryProgress:
    """Shows which run is under way, for how long, and how many there are; what each ended with stays on the screen."""

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False)
        self._status: Status | None = None
        self._what = ""

    def __enter__(self) -> TryProgress:
        """Nothing to show yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the moving line away."""
        self._stop()

    def begins(self, name: str, number: int, of: int) -> None:
        """A run begins."""
        self._what = f"run {number} of {of}: {escape(visible(name))}"
        if self._console.is_terminal:
            self._status = self._console.status(self._what, refresh_per_second=REFRESH_PER_SECOND)
            self._status.start()

    def ticks(self, seconds: float) -> None:
        """It goes on."""
        if self._status is not None:
            self._status.update(f"{self._what}, {units.duration(int(seconds) * 1e9)}")

    def ends(self, run: Run) -> None:
        """It has ended; say with what."""
        self._stop()
        reading = run.reading
        told = reading.status if reading.status != "measured" else self._told(run)
        self._console.print(f"perfwrap: {self._what}: {escape(visible(told))}", soft_wrap=True)

    def _told(self, run: Run) -> str:
        """Return what a measured run found."""
        durations = run.reading.steps.duration_ns
        mean = float(durations.mean()) if durations.size else None
        steps = f"{units.counted(durations.size, 'step')} of {units.duration(mean, 3)}"
        return f"{steps}, in {units.duration(run.wall_s * 1e9)}"

    def _stop(self) -> None:
        """Take the moving line away."""
        if self._status is not None:
            self._status.stop()
            self._status = None

"""A bar for whoever waits: shown on a terminal, on standard error, and only once a wait takes over a second."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console

from perfwrap.shown_text import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_SECONDS = 1.0


class Waiting:
    """Shows what is being waited for; ``total`` parts of it, where they can be counted."""

    def __init__(self, what: str, total: int | None = None, console: Console | None = None) -> None:
        self._console = console or Console(file=sys.stderr)
        self._what, self._total, self._done = visible(what), total, 0
        self._lock = threading.Lock()
        self._over = False
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._timer = threading.Timer(PATIENCE_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Waiting:
        """Begin to wait."""
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the wait, and leave nothing on the terminal."""
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()

    def advance(self) -> None:
        """Say that one more part is done."""
        with self._lock:
            self._done += 1
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self._done)

    def _show(self) -> None:
        """Show the bar, unless the wait is over already."""
        # Imported here, not above: most waits are over before a bar is shown.
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        with self._lock:
            if self._over:
                return
            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task(self._what, total=self._total, completed=self._done)
            self._bar.start()

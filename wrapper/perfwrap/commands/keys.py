"""Reads single keys from a terminal, and restores the terminal."""

from __future__ import annotations

import os
import select
import signal
import termios
import time
import tty
from types import FrameType, TracebackType
from typing import Any, TextIO


class Keys:
    """The keyboard, in a ``with`` block; if the input is not a terminal, only signals end the view.

    SIGINT, SIGTERM and SIGHUP count as the key that quits, so that the terminal is restored. SIGTSTP (control-Z) sets
    ``asks_to_stop``; call ``stop`` then.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._input = stream.fileno() if stream is not None and stream.isatty() else None
        self._settings: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._quit = False
        self.asks_to_stop = False

    def __enter__(self) -> Keys:
        """Start to handle the keyboard and the signals."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
            self._handlers[number] = signal.signal(number, self._note)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal and the signal handlers."""
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def stop(self) -> None:
        """Stop this process until the shell continues it; the terminal is restored meanwhile."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.asks_to_stop = False
        self._take()

    def asks_to_quit(self, seconds: float) -> bool:
        """Wait for so many seconds at most; return whether the user wants to quit."""
        end = time.monotonic() + seconds
        while not (self._quit or self.asks_to_stop) and (left := end - time.monotonic()) > 0:
            if self._input is None:
                time.sleep(min(left, 0.1))
            elif select.select([self._input], [], [], min(left, 0.1))[0]:
                pressed = os.read(self._input, 64)
                # Arrow keys and others send an escape character and more.
                self._quit = not pressed or pressed[:1] in (b"q", b"Q", b"\x04") or pressed == b"\x1b"
        return self._quit

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Note a signal as the wish to stop or to quit."""
        if number == signal.SIGTSTP:
            self.asks_to_stop = True
        else:
            self._quit = True

    def _take(self) -> None:
        """Read keys one by one, without echo."""
        if self._input is not None:
            self._settings = termios.tcgetattr(self._input)
            tty.setcbreak(self._input)

    def _give_back(self) -> None:
        """Restore the terminal."""
        if self._input is not None:
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._settings)

"""Look at some monitors again and again, in a thread of its own.

A monitor that fails takes nothing from the others: what ended it becomes coverage, and the rest goes on in a
new thread. A monitor that may have to wait (a stuck driver) has a thread for itself.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from perfwrap.monitors.journal import JournalWriter

SECOND_NS = 1_000_000_000
LARGEST_STRIDE = 64
LONGEST_LATENESS_NS = 5 * SECOND_NS
"""A look that comes so much too late leaves a hole in the coverage: the machine, or this process, stood still."""


class Monitor(Protocol):
    """Something that can be looked at; times are CLOCK_MONOTONIC in nanoseconds."""

    def quick(self, now_ns: int) -> None:
        """Take what is worth ten looks a second; after a pause every line of code costs ten times as much."""

    def full(self, now_ns: int) -> None:
        """Write what was taken since the last time, and what one look a second is enough for."""

    def close(self) -> None:
        """Write the rest and let go."""


class Ending:
    """The end of the run, for several threads to wait for; half as dear as a threading.Event."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def announce(self) -> None:
        """Wake everybody; to be called once."""
        os.close(self._write)

    def waiter(self) -> Callable[[float], bool]:
        """Return a function that waits so many seconds and says whether the end has come."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN | select.POLLHUP)
        return lambda seconds: bool(poll.poll(math.ceil(seconds * 1000)))


class Watcher:
    """Runs monitors until the end.

    ``watches`` are functions by name that return a monitor, or None when they wrote down why there is none.
    """

    def __init__(
        self,
        journal: JournalWriter,
        watches: Mapping[str, Callable[[], Monitor | None]],
        ending: Ending,
        interval_ns: int,
        quick: bool,
    ) -> None:
        self.stride = 1
        """It looks at every so many-th of its moments only."""
        self.cost_ns = 0
        """Processor time of looking so far."""
        self._journal, self._unopened, self._ending = journal, dict(watches), ending
        self._interval_ns, self._quick = interval_ns, quick
        self._monitors: dict[str, Monitor] = {}
        self._since_ns: dict[str, int] = {}
        self._current = ""
        self._thread: WatcherThread | None = None

    def start(self) -> None:
        """Begin, or go on with the monitors that are left."""
        self._thread = WatcherThread(self)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the last look; what does not answer is given up, and coverage says so."""
        deadline = time.monotonic() + seconds
        # One that failed may have been followed by another, for the monitors that are left.
        while (thread := self._thread) is not None and time.monotonic() < deadline:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread is not None:
            self.drop("did not answer when the command ended")

    def run(self) -> None:
        """Open what is not open yet and look until the end; a last look then, too."""
        while self._unopened:
            self._current, watch = next(iter(self._unopened.items()))
            monitor = watch()
            del self._unopened[self._current]
            if monitor is not None:
                self._since_ns[self._current] = time.monotonic_ns()
                self._monitors[self._current] = monitor
                self._journal.watched(self._current, self._since_ns[self._current])
        if self._monitors:
            self._look_until_the_end()
            self._look(time.monotonic_ns(), full=True)
        for monitor in self._in_turn():
            del self._monitors[self._current]
            monitor.close()
        self._journal.flush()
        self._thread = None

    def drop(self, why: str) -> bool:
        """Write down that the current monitor is given up; say whether others are left."""
        since_ns = self._since_ns.get(self._current)
        if since_ns is None:
            self._journal.not_watched(self._current, why)
        else:
            self._journal.watched(self._current, since_ns, time.monotonic_ns(), why)
        self._monitors.pop(self._current, None)
        self._unopened.pop(self._current, None)
        self._thread = None
        return bool(self._monitors or self._unopened)

    def _look(self, now_ns: int, full: bool) -> None:
        if self._quick:
            for monitor in self._in_turn():
                monitor.quick(now_ns)
        if full:
            for monitor in self._in_turn():
                monitor.full(now_ns)
            self._journal.flush()

    def _in_turn(self) -> Iterator[Monitor]:
        """Yield the monitors, remembering which one has its turn."""
        for name, monitor in list(self._monitors.items()):
            self._current = name
            yield monitor

    def slow_down(self) -> None:
        """Look half as often from now on, and say so."""
        if self.stride < LARGEST_STRIDE:
            self._set_stride(2 * self.stride)

    def speed_up(self) -> None:
        """Look twice as often from now on, as far as it was slowed down before, and say so."""
        if self.stride > 1:
            self._set_stride(self.stride // 2)

    def explain_pace(self, why: str) -> None:
        """Write into the coverage how often is looked now, and why not more often."""
        stride = self.stride * self._journal.stride
        pace = f"at last, every {self._interval_ns * stride / SECOND_NS:g} s" if stride > 1 else "for a while"
        for name in list(self._monitors):
            self._journal.watched(name, self._since_ns[name], note=f"looked less often {pace}: {why}")

    def _tell_hole(self, until_ns: int, now_ns: int) -> None:
        """Write down that nobody looked between two moments."""
        seconds = (now_ns - until_ns) // SECOND_NS
        for name, since_ns in self._since_ns.items():
            if name in self._monitors:
                why = f"nothing was looked at for {seconds} s: the machine or the monitors stood still"
                self._journal.watched(name, since_ns, until_ns, why)
                self._since_ns[name] = now_ns
                self._journal.watched(name, now_ns)

    def _set_stride(self, stride: int) -> None:
        self.stride = stride
        for name in list(self._monitors):
            self._journal.thin(name, stride)
        self.explain_pace("looking took too much of a core")

    def _look_until_the_end(self) -> None:
        ended = self._ending.waiter()
        due = next_full = time.monotonic_ns()
        opening_ns = time.thread_time_ns() - self.cost_ns
        while not ended(max(0, due - time.monotonic_ns()) / SECOND_NS) and self._journal.alive:
            now_ns = time.monotonic_ns()
            stride = self.stride * self._journal.stride
            if now_ns - due > LONGEST_LATENESS_NS:
                self._tell_hole(due, now_ns)
            full = now_ns >= next_full
            self._look(now_ns, full)
            if full:
                # A wake-up that is a little early still counts.
                next_full = now_ns + SECOND_NS * stride - self._interval_ns // 2
                self.cost_ns = time.thread_time_ns() - opening_ns
            interval_ns = stride * (self._interval_ns if self._quick else max(self._interval_ns, SECOND_NS))
            # A look that came late does not make the next ones come in a hurry.
            due += (1 + max(0, now_ns - due) // interval_ns) * interval_ns


class WatcherThread(threading.Thread):
    """The thread of a watcher; it never keeps the process alive."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(daemon=True)
        self.watcher = watcher

    def run(self) -> None:
        """Run the watcher."""
        self.watcher.run()


def survive(failure: threading.ExceptHookArgs) -> None:
    """Turn what ended a thread into coverage and go on without that monitor; for ``threading.excepthook``."""
    if not isinstance(failure.thread, WatcherThread):
        return
    trace = failure.exc_traceback
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = (
        f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})" if trace is not None else ""
    )
    watcher = failure.thread.watcher
    if watcher.drop(f"stopped: {failure.exc_type.__name__}: {failure.exc_value}{place}"):
        watcher.start()

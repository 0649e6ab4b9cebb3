"""Call some monitors periodically, in a separate thread.

A monitor that fails does not affect the others: the error is reported as coverage, and the rest continues. A monitor
that may block (a stuck driver) has a thread of its own.
"""

from __future__ import annotations

import math
import os
import select
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from perfwrap.monitors.monitor_journal import JournalWriter

SECOND_NS = 1_000_000_000
LARGEST_STRIDE = 64
LONGEST_LATENESS_NS = 5 * SECOND_NS
"""A sample that is this late leaves a gap in the coverage: the machine, or this process, was suspended."""


class Monitor(Protocol):
    """Something that can be sampled; times are CLOCK_MONOTONIC in nanoseconds."""

    def quick(self, now_ns: int) -> None:
        """Sample what is needed ten times a second; after a pause every line of code costs ten times as much."""

    def full(self, now_ns: int) -> None:
        """Write the samples since the last call, and sample what is needed once a second."""

    def close(self) -> None:
        """Write the rest and close."""


class Ending:
    """The end of the run, for several threads to wait for; half as expensive as a threading.Event."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def announce(self) -> None:
        """Wake all waiting threads; called once."""
        os.close(self._write)

    def waiter(self) -> Callable[[float], bool]:
        """Return a function that waits for a number of seconds and returns whether the run has ended."""
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
        """It uses only every ``stride``-th of its ticks."""
        self.cost_ns = 0
        """CPU time of sampling so far."""
        self._journal, self._unopened, self._ending = journal, dict(watches), ending
        self._interval_ns, self._quick = interval_ns, quick
        self._monitors: dict[str, Monitor] = {}
        self._since_ns: dict[str, int] = {}
        self._current = ""
        # It never keeps the process alive.
        self._thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Wait for the last samples; a monitor that does not respond is dropped, with a note in the coverage."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._drop("did not respond when the command ended")

    def run(self) -> None:
        """Run the monitors until the end; one that fails is dropped, with a note in the coverage."""
        while self._unopened or self._monitors:
            try:
                self._watch()
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one monitor, the others continue
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"({Path(place.filename).name}:{place.lineno})"
                self._drop(f"stopped: {type(error).__name__}: {error} {where}")

    def _watch(self) -> None:
        """Open the monitors that are not open yet, and sample until the end and once more at the end."""
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
            self._monitors.pop(self._current, None)
            monitor.close()
        self._journal.flush()

    def _drop(self, why: str) -> None:
        """Record that the current monitor is dropped."""
        since_ns = self._since_ns.get(self._current)
        if since_ns is None:
            self._journal.not_watched(self._current, why)
        else:
            self._journal.watched(self._current, since_ns, time.monotonic_ns(), why)
        self._monitors.pop(self._current, None)
        self._unopened.pop(self._current, None)

    def _look(self, now_ns: int, full: bool) -> None:
        if self._quick:
            for monitor in self._in_turn():
                monitor.quick(now_ns)
        if full:
            for monitor in self._in_turn():
                monitor.full(now_ns)
            self._journal.flush()

    def _in_turn(self) -> Iterator[Monitor]:
        """Yield the monitors, remembering the current one."""
        for name, monitor in list(self._monitors.items()):
            self._current = name
            yield monitor

    def slow_down(self) -> None:
        """Sample half as often from now on, and record that."""
        if self.stride < LARGEST_STRIDE:
            self._set_stride(2 * self.stride)

    def speed_up(self) -> None:
        """Sample twice as often from now on, up to the original rate, and record that."""
        if self.stride > 1:
            self._set_stride(self.stride // 2)

    def explain_pace(self, why: str) -> None:
        """Write the current sampling interval into the coverage, and why it is not shorter."""
        stride = self.stride * self._journal.stride
        pace = (
            f"at the end, every {self._interval_ns * stride / SECOND_NS:g} s"
            if stride > 1
            else "for some time"
        )
        for name in list(self._monitors):
            self._journal.watched(name, self._since_ns[name], note=f"sampled less often {pace}: {why}")

    def _record_gap(self, until_ns: int, now_ns: int) -> None:
        """Record that there are no samples between two moments."""
        seconds = (now_ns - until_ns) // SECOND_NS
        for name, since_ns in self._since_ns.items():
            if name in self._monitors:
                why = f"no samples for {seconds} s: the machine or the monitors were suspended"
                self._journal.watched(name, since_ns, until_ns, why)
                self._since_ns[name] = now_ns
                self._journal.watched(name, now_ns)

    def _set_stride(self, stride: int) -> None:
        self.stride = stride
        for name in list(self._monitors):
            self._journal.thin(name, stride)
        self.explain_pace("sampling used too much CPU time")

    def _look_until_the_end(self) -> None:
        ended = self._ending.waiter()
        due = next_full = time.monotonic_ns()
        opening_ns = time.thread_time_ns() - self.cost_ns
        while not ended(max(0, due - time.monotonic_ns()) / SECOND_NS) and self._journal.alive:
            now_ns = time.monotonic_ns()
            stride = self.stride * self._journal.stride
            if now_ns - due > LONGEST_LATENESS_NS:
                self._record_gap(due, now_ns)
            full = now_ns >= next_full
            self._look(now_ns, full)
            if full:
                # A wake-up that is a little early still counts.
                next_full = now_ns + SECOND_NS * stride - self._interval_ns // 2
                self.cost_ns = time.thread_time_ns() - opening_ns
            interval_ns = stride * (self._interval_ns if self._quick else max(self._interval_ns, SECOND_NS))
            # A late sample does not make the next ones come sooner.
            due += (1 + max(0, now_ns - due) // interval_ns) * interval_ns

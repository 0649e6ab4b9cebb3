"""A process that only detects which signals reach the whole process group.

It is forked, not executed, so it starts at once and costs nothing; it has the name of the command (``pkill -f
train.py`` finds both or neither) and dies with the launcher.
"""

from __future__ import annotations

import os
import select
import signal
import struct
import time

from perfwrap.launch import descriptors, kernel, proc
from perfwrap.launch.signals import ALL

PING = int(signal.SIGRTMAX)
"""The launcher asks whether all earlier signals were handled. Real-time signals are delivered last."""
WATCH = PING - 1
"""The launcher is about to stop: wake it when the command continues without it."""

REPORT = struct.Struct("<iid")
"""Signal, pid of the sender, CLOCK_MONOTONIC in seconds; the answer to a PING is a PING."""
ORDER = struct.Struct("<i")

ANSWER_SECONDS = 2.0
"""After this time without an answer, the canary counts as not having seen the signal: better twice than never."""
BEFORE_SECONDS = 1.0
"""How much later than the canary the launcher may see a signal on a busy machine."""
AGAIN_SECONDS = 0.25
"""GNU timeout signals the pid and the group: both copies belong to the one that the canary saw."""
UNTIL_STOPPED_SECONDS, WATCH_SECONDS = 1.0, 0.1
LOOK_SECONDS = 60.0
"""How often the canary checks for the launcher if the kernel cannot end both together."""


class Canary:
    """The launcher's end of a canary."""

    def __init__(self, pid: int, reports: int, orders: int) -> None:
        """Hold the pid and the pipes from and to the process."""
        self.pid = pid
        self._reports = reports
        self._orders = orders
        self._seen: list[tuple[int, int, float]] = []
        self._reported: dict[tuple[int, int], float] = {}
        self._unanswered = 0
        self._readable = select.poll()
        self._readable.register(reports, select.POLLIN)

    def wait_until_it_looks_like_the_command(self) -> None:
        """Wait for its first report: before, signals sent to perfwrap by name reach the canary, too."""
        if self._readable.poll(ANSWER_SECONDS * 1000):
            os.read(self._reports, REPORT.size)

    def saw(self, number: int, sender: int, moment: float) -> bool:
        """Return whether the signal that this sender sent at about that time reached the whole group.

        A signal is reported once, and once more right after: see AGAIN_SECONDS.
        """
        self._ask()
        self._seen = [seen for seen in self._seen if seen[2] >= moment - BEFORE_SECONDS]
        for seen in self._seen:
            if seen[:2] == (number, sender):
                self._seen.remove(seen)
                self._reported[number, sender] = seen[2]
                return True
        return self._reported.get((number, sender), 0.0) >= moment - AGAIN_SECONDS

    def wake_launcher_when_runs(self, child: int) -> None:
        """Continue the launcher, which is about to stop, if the child continues alone."""
        try:
            os.write(self._orders, ORDER.pack(child))
            os.kill(self.pid, WATCH)
        except OSError:
            return  # It has ended: the next waitpid returns its status.

    def _ask(self) -> None:
        """Read all reports up to the answer to a PING."""
        try:
            os.kill(self.pid, PING)
            self._unanswered += 1
            while self._unanswered and self._readable.poll(ANSWER_SECONDS * 1000):
                report = os.read(self._reports, REPORT.size)
                if len(report) < REPORT.size:
                    return
                number, sender, moment = REPORT.unpack(report)
                if (number, sender) == (PING, os.getpid()):
                    self._unanswered -= 1
                else:
                    self._seen.append((number, sender, moment))
        except OSError:
            return  # It has ended: the next waitpid returns its status.


def hatch(command: list[str]) -> Canary:
    """Fork the canary from a launcher that has all signals blocked; OSError if that fails."""
    launcher = os.getpid()
    reports, reports_in = os.pipe()
    orders_out, orders = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kernel.die_with(launcher)
            descriptors.point_at_null(0, 1, 2)
            descriptors.close_all_but(reports_in, orders_out)
            kernel.look_like(command)
            os.write(reports_in, REPORT.pack(0, 0, 0.0))
            _live(launcher, reports_in, orders_out)
        finally:
            os._exit(0)
    os.close(reports_in)
    os.close(orders_out)
    canary = Canary(pid, reports, orders)
    canary.wait_until_it_looks_like_the_command()
    return canary


def _live(launcher: int, reports: int, orders: int) -> None:
    """Report every signal that a process sent, until the launcher has ended."""
    while True:
        sent = signal.sigtimedwait(ALL, LOOK_SECONDS)
        if sent is None and os.getppid() != launcher:
            return
        if sent is not None and (sent.si_pid, sent.si_signo) == (launcher, WATCH):
            sent = _watch(launcher, ORDER.unpack(os.read(orders, ORDER.size))[0])
        if sent is not None and sent.si_code <= 0:
            os.write(reports, REPORT.pack(sent.si_signo, sent.si_pid, time.monotonic()))


def _watch(launcher: int, child: int) -> signal.struct_siginfo | None:
    """Continue the stopped launcher once the command runs or has ended; return what continued the group."""
    give_up = time.monotonic() + UNTIL_STOPPED_SECONDS
    has_stopped = False
    while True:
        stopped = proc.is_stopped(launcher)
        has_stopped = has_stopped or stopped
        if stopped and not proc.is_stopped(child):
            os.kill(launcher, signal.SIGCONT)
        if not stopped and (has_stopped or time.monotonic() > give_up):
            return None
        continued = signal.sigtimedwait({signal.SIGCONT}, WATCH_SECONDS)
        if continued is not None:
            return continued

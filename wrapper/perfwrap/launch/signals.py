"""Wait for a command and forward the signals that are meant for it, each exactly once.

All signals are blocked and read with ``sigtimedwait``, which returns the sender of each. Signals of the terminal reach
the whole process group, including the command. Signals of a process may be for the launcher's pid alone or for the
group; a canary in the same group distinguishes the two. The launcher stops and continues together with the command, so
that a shell's job control sees the same as without perfwrap.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from perfwrap.launch import proc

ALL = signal.valid_signals()
STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}

SETTLE_SECONDS = 0.03
"""The minimum wait for a decision: GNU timeout and others signal first the pid and then its group."""
LONGEST_SETTLE_SECONDS = 0.25
"""The wait if the sender still runs: on a busy machine it may be delayed between the two."""


@contextmanager
def blocked() -> Iterator[None]:
    """Block all signals within the block; those that arrive meanwhile are handled after it.

    Threads inherit the blocked signals, so libraries that start threads are imported here before a command is
    supervised: a thread that blocks none would take a signal of the supervisor.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class OriginalSignals:
    """The signal state of the command without perfwrap."""

    def __init__(self) -> None:
        """Store the state, and block all signals from now on."""
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
        self.ends_ignored = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
        if self.ends_ignored:
            # Otherwise the kernel would discard the command's exit status.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def restore(self) -> None:
        """Give this process that state; only between fork and execution."""
        if self.ends_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        reset_what_python_changed()
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


def reset_what_python_changed() -> None:
    """Undo the signal setup of Python; signals that were inherited as ignored stay ignored.

    Whether SIGPIPE and SIGXFSZ were ignored before is unknown; they rarely are.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        # Python's handler would catch a Ctrl-C between here and the execution.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Witness(Protocol):
    """A process in the same group that reports which signals reached the whole group."""

    pid: int

    def saw(self, number: int, sender: int, moment: float) -> bool:
        """Return whether the signal that this sender sent at about that time reached the whole group."""

    def wake_launcher_when_runs(self, child: int) -> None:
        """Continue the launcher, which is about to stop, if the child continues alone."""


class Sent(NamedTuple):
    """A signal that waits for its decision."""

    number: int
    sender: int
    time: float
    due: float


class Supervisor:
    """Waits for children of the launcher, one after the other."""

    def __init__(self, canary: Witness | None) -> None:
        """Supervise with the help of a canary; without one, every signal is forwarded, also those of the group."""
        self.canary = canary
        self.ended: dict[int, int] = {}
        """Wait status of every other child that has ended."""
        self._waiting: list[Sent] = []
        self._stop = 0
        self._stop_due = 0.0
        self._stand_in, self._is_apart = 0, False

    def stand_for(self, pid: int, is_apart: bool) -> None:
        """Forward signals to that process instead of the child that runs it; 0 for the child again.

        ``is_apart`` means that it is in another session, where signals of the terminal do not arrive.
        """
        self._stand_in, self._is_apart = pid, is_apart

    def wait(self, child: int) -> int:
        """Wait for the end of the child, forwarding signals, and return its wait status."""
        while (status := self._reap(child)) is None:
            sent = signal.sigtimedwait(ALL, self._patience())
            if sent is not None:
                self._receive(sent, child)
            self._judge_due(child)
        # Signals for a command that outlives its tool still wait for their decision.
        if not self._stand_in:
            self._waiting.clear()
        self._stop = 0
        return status

    def pause(self, seconds: float) -> bool:
        """Wait for any event, at most that long; return whether a signal asked programs to end."""
        sent = signal.sigtimedwait(ALL, max(0.0, seconds))
        self._reap(0)
        return sent is not None and sent.si_signo in ENDS

    def attend(self) -> None:
        """Forward pending signals to the process that is not a child of this one, without waiting."""
        sent = signal.sigtimedwait(ALL, 0)
        # Only its parent can find out whether it stays stopped.
        if sent is not None and sent.si_signo != signal.SIGCONT:
            self._receive(sent, self._stand_in)
        self._judge_due(self._stand_in)
        self._reap(0)

    def _reap(self, child: int) -> int | None:
        """Handle state changes of children; return the status of the one waited for if it has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return None
            if pid == 0:
                return None
            if os.WIFSTOPPED(status):
                if pid == child:
                    # Followed a moment later: a SIGCONT for the whole group may already be on its way.
                    self._stop, self._stop_due = os.WSTOPSIG(status), time.monotonic() + SETTLE_SECONDS
            elif pid == child:
                return status
            else:
                self.ended[pid] = status
                if self.canary is not None and pid == self.canary.pid:
                    self.canary = None

    def _patience(self) -> float:
        """Return how long the next decision can wait: a day if there is none."""
        due = [sent.due for sent in self._waiting[:1]] + ([self._stop_due] if self._stop else [])
        return max(0.0, min(due) - time.monotonic()) if due else 86400.0

    def _receive(self, sent: signal.struct_siginfo, child: int) -> None:
        """Forward one signal at once, keep it for a decision, or drop it."""
        number = sent.si_signo
        if number == signal.SIGCHLD:
            return
        # Like the kernel does with pending signals: stops and SIGCONT cancel each other.
        opposite = {signal.SIGCONT} if number in STOPS else STOPS if number == signal.SIGCONT else set()
        self._waiting = [waiting for waiting in self._waiting if waiting.number not in opposite]
        if sent.si_code <= 0:
            now = time.monotonic()
            self._waiting.append(Sent(number, sent.si_pid, now, now + SETTLE_SECONDS))
        elif self._is_apart or number == signal.SIGALRM:
            _send(self._stand_in or child, number)  # An alarm that was set before reaches only this process.
        elif number == signal.SIGHUP and os.getsid(0) == os.getpid():
            # A terminal that hangs up signals and continues only the leader of the session.
            # All other signals of the kernel reached the command as well.
            _send(self._stand_in or child, number)
            if proc.is_stopped(child):
                _send(child, signal.SIGCONT)

    def _judge_due(self, child: int) -> None:
        """Make the decisions that are due."""
        now = time.monotonic()
        while self._waiting and self._waiting[0].due <= now:
            sent = self._waiting.pop(0)
            if proc.is_running(sent.sender) and now < sent.time + LONGEST_SETTLE_SECONDS:
                self._waiting.insert(0, sent._replace(due=now + SETTLE_SECONDS))
            else:
                self._judge(sent, child)
        if self._stop and self._stop_due <= now:
            number, self._stop = self._stop, 0
            self._stop_like(number, child)

    def _judge(self, sent: Sent, child: int) -> None:
        """Forward one signal, unless the whole group got it."""
        if self.canary is not None and self.canary.saw(sent.number, sent.sender, sent.time):
            if self._is_apart:
                _send(self._stand_in, sent.number)
            return
        if sent.number == signal.SIGCONT and not self._stays_stopped(child):
            return  # A SIGCONT to the launcher alone is meant for the job, which runs here, or was stopped again.
        if sent.sender == child:
            # The command signals its parent, which without perfwrap is the parent of this process.
            _send(os.getppid(), sent.number)
        else:
            _send(self._stand_in or child, sent.number)

    def _stays_stopped(self, child: int) -> bool:
        """Return whether the child is still in the same stop, not in a newer one."""
        newer = os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        return proc.is_stopped(child) and not self._stop and newer is None

    def _stop_like(self, number: int, child: int) -> None:
        """Stop as the child did, unless it runs again already; returns when continued."""
        if not proc.is_stopped(child):
            return
        if self.canary is not None:
            self.canary.wake_launcher_when_runs(child)
        # Sent while blocked, it merges with one that the terminal may have sent.
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number} & STOPS)
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL)


def _send(pid: int, number: int) -> None:
    """Send a signal to one process; a missing permission (for another user's process) is as without perfwrap."""
    if pid > 0:  # A parent outside this pid namespace is 0, which would mean the whole group.
        try:
            os.kill(pid, number)
        except OSError:
            return

"""Wait for a command and pass on to it the signals that were meant for it, each exactly once.

All signals are blocked and read with ``sigtimedwait``: the kernel then says who sent each. What came from
the terminal reached the whole process group, the command included. What a process sent may have been for the
launcher's pid alone or for the group; a canary in the same group tells the two apart. The command's stopping
and going on is followed, so that a shell's job control sees the job that it would have seen.
"""

from __future__ import annotations

import os
import signal
import time
from typing import NamedTuple, Protocol

from perfwrap.launch import proc

ALL = signal.valid_signals()
STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}

SETTLE_SECONDS = 0.03
"""How long a verdict waits at least: GNU timeout and others signal first the pid and then its group."""
LONGEST_SETTLE_SECONDS = 0.25
"""How long it waits for a sender that still runs: on a busy machine it may be held up between the two."""


class OriginalSignals:
    """The signal state that the command would have been started with."""

    def __init__(self) -> None:
        """Take the state down and block everything from here on."""
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
        self.ends_ignored = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
        if self.ends_ignored:
            # Otherwise the kernel would throw the command's exit status away.
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def restore(self) -> None:
        """Give this process that state; only between fork and execution."""
        if self.ends_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        reset_what_python_changed()
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


def reset_what_python_changed() -> None:
    """Undo what every Python does at its start; what was inherited as ignored stays ignored.

    Whether SIGPIPE and SIGXFSZ were ignored before, nobody can know any more; hardly ever are they.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        # Python's handler would swallow a Ctrl-C between here and the execution.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Witness(Protocol):
    """Somebody in the same process group who tells what reached the whole group."""

    pid: int

    def saw(self, number: int, sender: int, moment: float) -> bool:
        """Say whether the signal that this sender sent about then came to the whole group."""

    def wake_launcher_when_runs(self, child: int) -> None:
        """Continue the launcher, which is about to stop, should the child go on alone."""


class Sent(NamedTuple):
    """A signal that waits for its verdict."""

    number: int
    sender: int
    time: float
    due: float


class Supervisor:
    """Waits for children of the launcher, one after the other."""

    def __init__(self, canary: Witness | None) -> None:
        """Supervise with the help of a canary; without one every signal is passed on, group's or not."""
        self.canary = canary
        self.ended: dict[int, int] = {}
        """Wait status of every other child that has ended."""
        self._waiting: list[Sent] = []
        self._stop = 0
        self._stop_due = 0.0
        self._stand_in, self._is_apart = 0, False

    def stand_for(self, pid: int, is_apart: bool) -> None:
        """Pass signals on to that process instead of the child that runs it; 0 for to the child again.

        ``is_apart`` says that it is in another session, where what the terminal sends does not arrive.
        """
        self._stand_in, self._is_apart = pid, is_apart

    def wait(self, child: int) -> int:
        """Wait for the child's end, passing signals on, and return its wait status."""
        while (status := self._reap(child)) is None:
            sent = signal.sigtimedwait(ALL, self._patience())
            if sent is not None:
                self._receive(sent, child)
            self._settle(child)
        # Those for a command that outlives its tool still wait for their verdict.
        if not self._stand_in:
            self._waiting.clear()
        self._stop = 0
        return status

    def pause(self, seconds: float) -> bool:
        """Wait for anything, that long at most; say whether a signal came that asks programs to end."""
        sent = signal.sigtimedwait(ALL, max(0.0, seconds))
        self._reap(0)
        return sent is not None and sent.si_signo in ENDS

    def attend(self) -> None:
        """Pass on what has come for the process that is no child of ours, without waiting."""
        sent = signal.sigtimedwait(ALL, 0)
        # Whether it stays stopped only its parent can ask.
        if sent is not None and sent.si_signo != signal.SIGCONT:
            self._receive(sent, self._stand_in)
        self._settle(self._stand_in)
        self._reap(0)

    def _reap(self, child: int) -> int | None:
        """Take in what happened to children; return the status of the one waited for when it has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return None
            if pid == 0:
                return None
            if os.WIFSTOPPED(status):
                if pid == child:
                    # Followed only in a moment: what continues the whole group may be under way already.
                    self._stop, self._stop_due = os.WSTOPSIG(status), time.monotonic() + SETTLE_SECONDS
            elif pid == child:
                return status
            else:
                self.ended[pid] = status
                if self.canary is not None and pid == self.canary.pid:
                    self.canary = None

    def _patience(self) -> float:
        """Return how long the next verdict can wait: a day when there is none to give."""
        due = [sent.due for sent in self._waiting[:1]] + ([self._stop_due] if self._stop else [])
        return max(0.0, min(due) - time.monotonic()) if due else 86400.0

    def _receive(self, sent: signal.struct_siginfo, child: int) -> None:
        """Pass on at once, set aside for a verdict, or drop one signal."""
        number = sent.si_signo
        if number == signal.SIGCHLD:
            return
        # As the kernel does with pending ones: stops and SIGCONT take each other back.
        opposite = {signal.SIGCONT} if number in STOPS else STOPS if number == signal.SIGCONT else set()
        self._waiting = [waiting for waiting in self._waiting if waiting.number not in opposite]
        if sent.si_code <= 0:
            now = time.monotonic()
            self._waiting.append(Sent(number, sent.si_pid, now, now + SETTLE_SECONDS))
        elif self._is_apart or number == signal.SIGALRM:
            _send(self._stand_in or child, number)  # An alarm that was set before rings here alone.
        elif number == signal.SIGHUP and os.getsid(0) == os.getpid():
            # A terminal that hangs up tells only the leader of the session, and continues it.
            # All else that the kernel sends reached the command as well.
            _send(self._stand_in or child, number)
            if proc.is_stopped(child):
                _send(child, signal.SIGCONT)

    def _settle(self, child: int) -> None:
        """Give the verdicts that are due."""
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
        """Pass one signal on, unless the whole group got it."""
        if self.canary is not None and self.canary.saw(sent.number, sent.sender, sent.time):
            if self._is_apart:
                _send(self._stand_in, sent.number)
            return
        if sent.number == signal.SIGCONT and not self._stays_stopped(child):
            return  # Who continues only the launcher means the job; here it runs, or was stopped anew.
        if sent.sender == child:
            # The command signals its parent: without perfwrap that is ours.
            _send(os.getppid(), sent.number)
        else:
            _send(self._stand_in or child, sent.number)

    def _stays_stopped(self, child: int) -> bool:
        """Say whether the child is still in the stop that was followed, not in a newer one."""
        newer = os.waitid(os.P_PID, child, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        return proc.is_stopped(child) and not self._stop and newer is None

    def _stop_like(self, number: int, child: int) -> None:
        """Stop as the child did, unless it runs again already; returns when continued."""
        if not proc.is_stopped(child):
            return
        if self.canary is not None:
            self.canary.wake_launcher_when_runs(child)
        # Sent first and let through then, it is one with what the terminal may have sent meanwhile.
        os.kill(os.getpid(), number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number} & STOPS)
        signal.pthread_sigmask(signal.SIG_BLOCK, ALL)


def _send(pid: int, number: int) -> None:
    """Send a signal to one process; that it may not be sent (to another user's) is as without perfwrap."""
    if pid > 0:  # A parent outside of our pid namespace is 0, which would mean the whole group.
        try:
            os.kill(pid, number)
        except OSError:
            return

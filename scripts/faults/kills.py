"""Faults of faults.py that come as signals: processes that are killed or suspended at a random moment."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from trial import Running, Trial, children

KILLED = -signal.SIGKILL
WORKERS = 2
GONE_SECONDS = 30.0
DEAD_WORKER = (
    "is killed by signal: Killed",
    "exited unexpectedly",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "EOFError",
)
"""The error of a program whose loader's worker is dead: PyTorch's message, or a connection that breaks before."""


def kill_program(trial: Trial) -> None:
    """The program is killed (SIGKILL)."""
    bare, running = trial.bare(WORKERS), trial.start(WORKERS)
    _wait_a_while(trial, running)
    _signal(running.pid(), signal.SIGKILL)
    ended = running.end()
    trial.expect_part(ended, bare, (KILLED, 0))  # 0: it had ended already.
    document = trial.expect_readable()
    if document and ended.code == KILLED:
        trial.expect(document["run"]["exit"] == {"signal": 9}, f"the report says {document['run']['exit']}")
    trial.expect_steps(ended.steps)


def kill_launcher(trial: Trial) -> None:
    """The launcher is killed: the program dies with it, and no process of perfwrap remains."""
    bare, running = trial.bare(WORKERS), trial.start(WORKERS)
    running.pid()
    _wait_a_while(trial, running)
    ours = children(
        running.process.pid
    )  # The program, too; a loader's workers may run a little longer, as without perfwrap.
    _signal(running.process.pid, signal.SIGKILL)
    running.process.wait()
    until = time.monotonic() + GONE_SECONDS
    while (left := set(ours) & set(running.left())) and time.monotonic() < until:
        time.sleep(0.02)
    trial.expect(not left, f"{len(left)} processes have outlived the launcher")
    ended = running.end()
    trial.expect_part(ended, bare, (KILLED, 0))
    trial.expect_readable()
    trial.expect_steps(ended.steps)


def kill_monitors(trial: Trial) -> None:
    """The monitors' process is killed."""
    bare, running = trial.bare(WORKERS), trial.start(WORKERS)
    running.pid()
    _wait_a_while(trial, running)
    _signal(running.monitors(), signal.SIGKILL)
    ended = running.end()
    trial.expect_same(ended, bare)
    trial.expect_readable()
    trial.expect_steps(ended.steps)


def kill_worker(trial: Trial) -> None:
    """A DataLoader's worker is killed: PyTorch ends the program, as without perfwrap."""
    bare, running = trial.bare(WORKERS), trial.start(WORKERS)
    running.wait_for_step()
    workers = children(running.pid())
    _wait_some_steps(trial, running)
    if workers:
        _signal(trial.chance.choice(workers), signal.SIGKILL)
    ended = running.end()
    trial.expect_part(ended, bare, (0, 1))
    if ended.code == 1:
        trial.expect(any(word in ended.errors for word in DEAD_WORKER), f"it says {ended.errors[-300:]}")
    trial.expect_readable()
    trial.expect_steps(ended.steps)


def suspend(trial: Trial) -> None:
    """Program, launcher or monitors are suspended for a while (SIGSTOP, SIGCONT)."""
    bare, running = trial.bare(WORKERS), trial.start(WORKERS)
    program = running.pid()
    whom = trial.chance.choice([program, running.process.pid, running.monitors()])
    _wait_a_while(trial, running)
    _signal(whom, signal.SIGSTOP)
    time.sleep(trial.chance.uniform(0.05, 1))
    _signal(whom, signal.SIGCONT)
    ended = running.end()
    trial.expect_same(ended, bare)
    trial.expect_readable()
    trial.expect_steps(ended.steps)


def _wait_a_while(trial: Trial, running: Running) -> None:
    """Wait for a random time: in one round of three during the start, otherwise during the steps."""
    running.pid()
    if trial.chance.random() < 1 / 3:
        time.sleep(trial.chance.uniform(0, 3))
    else:
        _wait_some_steps(trial, running)


def _wait_some_steps(trial: Trial, running: Running) -> None:
    running.wait_for_step(trial.chance.randint(1, trial.steps))
    time.sleep(trial.chance.uniform(0, 0.002))


def _signal(pid: int, number: signal.Signals) -> None:
    """Send a signal; a process that has already ended is ignored."""
    with contextlib.suppress(ProcessLookupError):
        if pid > 0:
            os.kill(pid, number)

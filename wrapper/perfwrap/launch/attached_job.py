"""Watches a running job from outside: host, GPU and stacks, until it ends, the user interrupts, or the time is over.

The job is not affected: nothing is sent to it, and it does not notice the end of the observation.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfwrap import run_folder
from perfwrap.errors import PerfwrapError
from perfwrap.launch import manifest, proc, remote, sidecar_process
from perfwrap.launch.options import Options
from perfwrap.run_folder import RunFolder

ENDS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
"""The signals that end the observation; they are not sent to the job."""
LOOK_SECONDS = 0.2
CHOICES = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Variables with the GPUs that a job sees; the monitors use their own environment."""


@dataclass(frozen=True)
class Job:
    """A running process; both numbers together identify it."""

    pid: int
    start_ticks: int
    command: list[str]
    directory: str
    environment: Mapping[str, str]


def find_job(pid: int) -> Job:
    """Return the process; PerfwrapError if there is none, or it belongs to another user."""
    known = proc.status(pid)
    if known is None or known[0] in proc.ENDED:
        raise PerfwrapError(
            f"There is no process {pid}." if known is None else f"Process {pid} has ended.",
            "Give the pid of the training command, or of torchrun. To list them: pgrep -af python",
        )
    place = Path(f"/proc/{pid}")
    try:
        status = (place / "status").read_text(encoding="utf-8", errors="replace").splitlines()
        words = os.fsdecode((place / "cmdline").read_bytes()).rstrip("\0").split("\0")
        owner = next(int(line.split()[2]) for line in status if line.startswith("Uid:"))
        if os.geteuid() not in (0, owner):
            raise PerfwrapError(
                f"Process {pid} belongs to another user ({owner}).",
                "Run perfwrap as that user, or with sudo.",
            )
        return Job(pid, known[1], words, str((place / "cwd").readlink()), _environment(place))
    except PermissionError as error:
        raise PerfwrapError(f"No permission to read process {pid}: {error.strerror}.", "Try sudo.") from error
    except (OSError, StopIteration) as error:
        raise PerfwrapError(f"Process {pid} has ended.", "Give the pid of a running process.") from error


def watch(
    job: Job,
    options: Options,
    seconds: float | None,
    with_recorder: bool,
    say: Callable[[str], None],
    offer: Callable[[Path, Path], None] | None = None,
) -> Path:
    """Watch a job, report problems, and return the run folder.

    ``with_recorder`` changes the job: its Pythons load the recorder for that time, if they can. A job that loads it by
    itself gets the script for that: ``offer`` is called with its path and that of the run folder. Ends when the first
    process of the job ends, after so many seconds, or when a signal asks this process to end. Raises PerfwrapError if
    the run folder cannot be created.
    """
    folder = run_folder.create(options.out, job.command, options.name)
    begun = manifest.begin(job.command, options, job.environment)
    begun |= {"cwd": job.directory, "attached": {"pid": job.pid, "ended": False, "recorder": False}}
    folder.write_manifest(begun)
    with ExitStack() as watching:
        brought = (
            remote.bring_in(folder, options, job.pid, watching) if with_recorder else remote.NO_RECORDERS
        )
        for sentence in brought.sentences:
            say(sentence)
        watching.enter_context(_signals_kept(ENDS | {signal.SIGCHLD}))
        if offer is not None:
            offer(remote.offer(folder, options, watching), folder.path.absolute())
        problem = _watch(job, folder, options, seconds)
    end = manifest.clock_pair()
    problems = list(brought.problems)
    if problem is not None:
        problems.append(f"the monitors {problem}")
        say(problems[-1])
    ending = {"end": end, "clock": [*begun["clock"], end], "warnings": problems}
    ended = not proc.runs(job.pid, job.start_ticks)
    recorded = bool(brought.pids or (offer is not None and remote.read_answers(folder)[0]))
    ending["attached"] = {"pid": job.pid, "ended": ended, "recorder": recorded}
    folder.write_manifest(begun | ending)
    return folder.path


def _watch(job: Job, folder: RunFolder, options: Options, seconds: float | None) -> str | None:
    """Let the monitors watch until the end; return their problems."""
    deadline = None if seconds is None else time.monotonic() + seconds
    for name in CHOICES:
        os.environ.pop(name, None)
    os.environ.update({name: job.environment[name] for name in CHOICES if name in job.environment})
    monitors = sidecar_process.start(folder, options, "", attached=job.pid)
    monitors.watch(job.pid)
    waiter = Waiter()
    while proc.runs(job.pid, job.start_ticks) and monitors.pid not in waiter.ended:
        left = LOOK_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0 or waiter.pause(min(LOOK_SECONDS, left)):
            break
    monitors.dismiss()
    return monitors.wait(waiter)


class Waiter:
    """Waits for blocked signals, and reaps children that ended."""

    def __init__(self) -> None:
        """Start without ended processes."""
        self.ended: dict[int, int] = {}

    def pause(self, seconds: float) -> bool:
        """Wait for a signal, at most that long; return whether one asks for the end."""
        sent = signal.sigtimedwait(ENDS | {signal.SIGCHLD}, max(0.0, seconds))
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                self.ended[found[0]] = found[1]
        except ChildProcessError:
            pass  # No child is left.
        return sent is not None and sent.si_signo in ENDS


@contextmanager
def _signals_kept(numbers: set[signal.Signals]) -> Iterator[None]:
    """Block signals, so that they are read on request; unread ones are dropped at the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        while signal.sigtimedwait(numbers, 0) is not None:
            continue
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _environment(place: Path) -> Mapping[str, str]:
    entries = os.fsdecode((place / "environ").read_bytes()).split("\0")
    pairs = (entry.partition("=") for entry in entries)
    return {name: value for name, equals, value in pairs if equals and name}

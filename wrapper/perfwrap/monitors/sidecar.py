"""The process beside the command in which all monitors run.

Started by the launcher with the arguments ``RUN_DIR LAUNCHER_PID --rate HZ``, all signals blocked; ``--say`` is the
descriptor of its standard error, for what cannot wait. Standard
input brings a line ``child PID`` when the command runs, a line ``end JSON`` that says how it ended (the mark
``command_end``), and ends when the command or the launcher has. What goes wrong here becomes coverage in this
process's journal and never more than that. Its own cost stands there, too: the series ``sidecar cpu_seconds``,
from the start on, each ten seconds and at the end.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from perfwrap.monitors import MONITORS, metrics, stalls
from perfwrap.monitors.journal import BUDGET_BYTES, JournalWriter
from perfwrap.monitors.pyspy_recording import Asked
from perfwrap.monitors.shown import Shown
from perfwrap.monitors.watcher import SECOND_NS, Ending, Monitor, Watcher, survive
from perfwrap.run_folder import RunFolder, host_name
from perfwrap.shown_text import harmless, visible

CLOCK_SECONDS = 10
LARGEST_STEP_NS = 100_000_000
"""When the wall clock moves more than this against the monotonic one, somebody has set it."""
ALLOWED_SHARE = 0.009
"""How much of one core looking may take."""
BURST = 2.0
"""So many times that is too much at once; less must be too much twice, because many processes that start together
cost something once."""
SURE = 2.5
"""Looking twice as often costs twice as much; the rest is for what changes from time to time."""
FINISH_SECONDS = 1.0
"""A monitor that has not ended so long after the command (a stuck driver) is left behind."""
OF_PROCESSES = ("processes", "pyspy", "stalls", "metrics")
"""The monitors of the command's own processes; the others look at what all commands of a machine share."""
STANDARD_INPUT = 0


def main() -> None:
    """Watch until standard input ends or the launcher is gone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.umask(0o077)  # also for what py-spy writes
    # One file stays open for each process of the run.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options = _options()
    folder = RunFolder(options.run_dir)
    journal = JournalWriter(folder.journal, host_name(), options.budget)
    journal.fact("role", "monitor")
    journal.fact("python", sys.version.split()[0])
    threading.excepthook = survive
    children: deque[int] = deque()
    roots: deque[int] = deque()
    shown = Shown()
    say = partial(_say, options.say)
    # Where a running job was attached to, there is nothing on its PYTHONPATH.
    hook = "" if options.attached else str(options.hook or folder.inject)
    more: dict[str, tuple[object, ...]] = {
        "processes": (folder.starts, hook, children),
        "pyspy": (folder, _asked_of_py_spy(options)),
        "gpu": (folder.starts,),
        "stalls": (folder, roots, _asked_of_stalls(options, say), shown),
        "metrics": (folder, _asked_of_metrics(options), shown, say),
    }
    ending = Ending()
    watchers = []
    for all_names, quick in MONITORS:
        names = [name for name in all_names if name in OF_PROCESSES or not options.only_processes]
        if not names:
            continue
        watches = {name: partial(_watch, name, journal, *more.get(name, ())) for name in names}
        watchers.append(Watcher(journal, watches, ending, int(SECOND_NS / options.rate), quick))
        watchers[-1].start()
    pace = Pace(journal, watchers)
    _wait(journal, options.launcher, (children, roots), pace)
    ending.announce()
    _finish(journal, watchers)


class Pace:
    """Keeps all watchers together below their part of one core: if they are not, the dearest slows down.

    It speeds up again when that is sure to fit.
    """

    def __init__(self, journal: JournalWriter, watchers: list[Watcher]) -> None:
        self._journal, self._watchers = journal, watchers
        self._stride = journal.stride
        self._was_too_much = False
        self._before: tuple[int, list[int]] | None = None

    def review(self, now_ns: int) -> None:
        """Compare what looking cost since the last time with what it may."""
        costs = [watcher.cost_ns for watcher in self._watchers]
        if self._before is not None:
            spent = [now - before for now, before in zip(costs, self._before[1], strict=True)]
            dearest = self._watchers[spent.index(max(spent))]
            share = sum(spent) / (now_ns - self._before[0])
            too_much = share > ALLOWED_SHARE
            if too_much and (self._was_too_much or share > BURST * ALLOWED_SHARE):
                dearest.slow_down()
            elif share < ALLOWED_SHARE / SURE:
                dearest.speed_up()
            self._was_too_much = too_much
        self._before = now_ns, costs
        if self._journal.stride != self._stride:
            self._stride = self._journal.stride
            for watcher in self._watchers:
                watcher.explain_pace("the journal's budget is limited")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="perfwrap.monitors.sidecar")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("launcher", type=int)
    parser.add_argument("--rate", type=float, default=10.0)
    parser.add_argument(
        "--hook", help="the folder on the command's PYTHONPATH, when it is not RUN_DIR/inject"
    )
    parser.add_argument("--budget", type=int, default=BUDGET_BYTES)
    parser.add_argument(
        "--attached", type=int, default=0, help="the first process of a job that runs already"
    )
    parser.add_argument("--only-processes", action="store_true", help="another process watches host and GPUs")
    parser.add_argument("--py-spy", help="the py-spy that samples stacks")
    parser.add_argument("--py-spy-rate", type=float, default=20.0)
    parser.add_argument("--py-spy-native", action="store_true")
    parser.add_argument("--glance", action="store_true", help="one short recording of one training process")
    parser.add_argument(
        "--say", type=int, default=-1, help="a descriptor for lines that the user sees at once"
    )
    parser.add_argument("--stall-after", type=float, default=60.0)
    parser.add_argument("--kill-on-stall", type=float, default=-1.0, help="the grace time, in seconds")
    parser.add_argument("--metrics", default="", help="PORT,ADDRESS,TOKEN_FILE")
    return parser.parse_args()


def _asked_of_py_spy(options: argparse.Namespace) -> Asked | None:
    if not options.py_spy:
        return None
    words = options.py_spy, options.py_spy_rate, options.py_spy_native, options.attached, options.glance
    return Asked(*words)


def _asked_of_stalls(options: argparse.Namespace, say: Callable[[str], None]) -> stalls.Asked | None:
    # Without the recorder nobody knows of any step.
    if options.attached or options.stall_after <= 0:
        return None
    grace = options.kill_on_stall
    return stalls.Asked(options.stall_after, options.launcher, say, grace >= 0, max(0.0, grace))


def _asked_of_metrics(options: argparse.Namespace) -> metrics.Asked | None:
    if not options.metrics:
        return None
    port, address, token_file = options.metrics.split(",", 2)
    return metrics.Asked(int(port), address, token_file)


def _say(descriptor: int, line: str) -> None:
    """Print one line for the user, where there is somebody to read it."""
    if descriptor >= 0:
        try:
            os.write(descriptor, f"{harmless(visible(line))}\n".encode("utf-8", "replace"))
        except OSError:
            return


def _watch(name: str, *arguments: object) -> Monitor | None:
    """Import and open a monitor; in its own thread, so that a missing library stops no other."""
    monitor: Monitor | None = import_module(f"perfwrap.monitors.{name}").watch(*arguments)
    return monitor


def _wait(journal: JournalWriter, launcher: int, children: tuple[deque[int], ...], pace: Pace) -> None:
    """Take in the launcher's lines until they end; now and then write the clocks and check the pace."""
    poll = select.poll()
    poll.register(STANDARD_INPUT, select.POLLIN | select.POLLHUP)
    cost, rest = journal.series("sidecar", "cpu_seconds"), b""
    offset_ns = journal.clock()
    while os.getppid() == launcher:
        offset_ns = _note_clock(journal, offset_ns)
        journal.samples(time.monotonic_ns(), [(cost, time.process_time())])
        pace.review(time.monotonic_ns())
        while poll.poll(CLOCK_SECONDS * 1000):
            text = os.read(STANDARD_INPUT, 4096)
            if not text:
                return
            *lines, rest = (rest + text).split(b"\n")
            for line in lines:
                _obey(line.decode("utf-8", "replace"), journal, children)


def _note_clock(journal: JournalWriter, before_ns: int) -> int:
    """Write down both clocks; a step of the wall clock, or a machine that slept, is a mark as well."""
    offset_ns = journal.clock()
    if abs(offset_ns - before_ns) > LARGEST_STEP_NS:
        journal.mark("clock_step", f"the wall clock moved by {(offset_ns - before_ns) / SECOND_NS:+.1f} s")
    return offset_ns


def _obey(line: str, journal: JournalWriter, children: tuple[deque[int], ...]) -> None:
    """Take in one of the launcher's lines."""
    word, _, rest = line.partition(" ")
    if word == "child" and rest.isdigit():
        for waiting in children:
            waiting.append(int(rest))
    elif word == "end":
        journal.mark("command_end", rest)


def _finish(journal: JournalWriter, watchers: list[Watcher]) -> None:
    """Let every monitor take its last look, end the journal and leave, whatever still hangs."""
    deadline = time.monotonic() + FINISH_SECONDS
    for watcher in watchers:
        watcher.join(deadline - time.monotonic())
    cost = journal.series("sidecar", "cpu_seconds")
    journal.samples(time.monotonic_ns(), [(cost, time.process_time())])
    journal.close()
    os._exit(0)


if __name__ == "__main__":
    main()

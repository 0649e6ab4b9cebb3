"""The process beside the command in which all monitors run.

A fork of the launcher calls ``main``; ``python -m perfwrap.monitors.sidecar RUN_DIR LAUNCHER_PID [SETTINGS]`` runs the
monitors alone, with the JSON of ``MonitorSettings``. All signals are blocked. Standard input brings a line ``child
PID`` when the command runs, a line ``end JSON`` that says how it ended (the mark ``command_end``), and ends when the
command or the launcher has. Failures here are only reported as coverage in this process's journal. Its own cost is
there, too: the series ``sidecar cpu_seconds``, at the start, every ten seconds and at the end.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from perfwrap.monitor_options import MonitorSettings
from perfwrap.monitors import MODULES, MONITORS
from perfwrap.monitors.metrics.metrics_options import MetricsOptions
from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.progress.shown_progress import SharedProgress
from perfwrap.monitors.pyspy.pyspy_recording import PySpyOptions
from perfwrap.monitors.stalls import stall_watch
from perfwrap.monitors.watcher import SECOND_NS, Ending, Monitor, Watcher
from perfwrap.run_folder import RunFolder, host_name
from perfwrap.shown_text import harmless, visible

CLOCK_SECONDS = 10
LARGEST_STEP_NS = 100_000_000
"""If the wall clock moves more than this against the monotonic one, it was set."""
ALLOWED_SHARE = 0.009
"""Share of one core that sampling may use."""
BURST = 2.0
"""The factor above which one excess is enough to slow down; a smaller excess must repeat, because many processes that
start together cost something once."""
SURE = 2.5
"""Sampling twice as often costs twice as much; the rest is a margin."""
MIN_SECONDS_FOR_CORES = 5.0
"""The cores are measured after runs of at least this time, since shorter ones are not worth 60 ms more, and after all
trials: edits are chosen by what they predict."""
FINISH_SECONDS = 1.0
"""A monitor that has not ended this long after the command (a stuck driver) is abandoned."""
OF_PROCESSES = ("processes", "pyspy", "stalls", "metrics")
"""The monitors of the command's own processes; the others sample what all commands of a machine share."""
STANDARD_INPUT = 0


def main(folder: RunFolder, launcher: int, settings: MonitorSettings) -> NoReturn:
    """Watch until standard input ends or the launcher is gone, then exit."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    os.umask(0o077)  # also for the files of py-spy
    # One file stays open for each process of the run.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    journal = JournalWriter(folder.journal, host_name(), settings.budget_bytes)
    journal.fact("role", "monitor")
    journal.fact("python", sys.version.split()[0])
    children: deque[int] = deque()
    roots: deque[int] = deque()
    shown = SharedProgress()
    say = partial(_say, settings.say)
    # A job that was attached to has no perfwrap folder on its PYTHONPATH.
    hook = "" if settings.attached else str(settings.hook or folder.inject)
    more: dict[str, tuple[object, ...]] = {
        "processes": (folder.starts, hook, children),
        "pyspy": (folder, _py_spy_options(settings)),
        "gpu": (folder.starts,),
        "stalls": (folder, roots, _stall_options(settings, launcher, say), shown),
        "metrics": (folder, _metrics_options(settings), shown, say),
    }
    ending = Ending()
    watchers = []
    for all_names, quick in MONITORS:
        names = [name for name in all_names if name in OF_PROCESSES or not settings.only_processes]
        if not names:
            continue
        watches = {name: partial(_watch, name, journal, *more.get(name, ())) for name in names}
        watchers.append(Watcher(journal, watches, ending, int(SECOND_NS / settings.rate_hz), quick))
        watchers[-1].start()
    pace, begun = Pace(journal, watchers), time.monotonic()
    _wait(journal, launcher, (children, roots), pace)
    ending.announce()
    is_long = settings.timed_trial or time.monotonic() - begun >= MIN_SECONDS_FOR_CORES
    _finish(journal, watchers, measure_cores=is_long and not settings.only_processes)


class Pace:
    """Keeps all watchers together below their share of one core; above it, the most expensive one slows down.

    It speeds up again when that certainly fits.
    """

    def __init__(self, journal: JournalWriter, watchers: list[Watcher]) -> None:
        self._journal, self._watchers = journal, watchers
        self._stride = journal.stride
        self._was_too_much = False
        self._before: tuple[int, list[int]] | None = None

    def review(self, now_ns: int) -> None:
        """Compare the cost of sampling since the last call with the limit."""
        costs = [watcher.cost_ns for watcher in self._watchers]
        if self._before is not None:
            spent = [now - before for now, before in zip(costs, self._before[1], strict=True)]
            costliest = self._watchers[spent.index(max(spent))]
            share = sum(spent) / (now_ns - self._before[0])
            too_much = share > ALLOWED_SHARE
            if too_much and (self._was_too_much or share > BURST * ALLOWED_SHARE):
                costliest.slow_down()
            elif share < ALLOWED_SHARE / SURE:
                costliest.speed_up()
            self._was_too_much = too_much
        self._before = now_ns, costs
        if self._journal.stride != self._stride:
            self._stride = self._journal.stride
            for watcher in self._watchers:
                watcher.explain_pace("the journal's budget is limited")


def _py_spy_options(settings: MonitorSettings) -> PySpyOptions | None:
    if not settings.py_spy:
        return None
    return PySpyOptions(
        settings.py_spy,
        settings.py_spy_hz,
        settings.py_spy_native,
        settings.attached,
        settings.light_sampling,
    )


def _stall_options(
    settings: MonitorSettings, launcher: int, say: Callable[[str], None]
) -> stall_watch.StallOptions | None:
    # Without the recorder there are no steps.
    if settings.attached or settings.stall_after_s <= 0:
        return None
    return stall_watch.StallOptions(
        settings.stall_after_s, launcher, say, settings.kill_on_stall, settings.kill_grace_s
    )


def _metrics_options(settings: MonitorSettings) -> MetricsOptions | None:
    if not settings.metrics_port:
        return None
    return MetricsOptions(settings.metrics_port, settings.metrics_address, settings.metrics_token_file)


def _say(descriptor: int, line: str) -> None:
    """Print one line for the user, if standard error has a reader."""
    if descriptor >= 0:
        try:
            os.write(descriptor, f"{harmless(visible(line))}\n".encode("utf-8", "replace"))
        except OSError:
            return


def _watch(name: str, *arguments: object) -> Monitor | None:
    """Import and open a monitor; in its own thread, so that a missing library affects no other."""
    monitor: Monitor | None = import_module(f"perfwrap.monitors.{MODULES[name]}").watch(*arguments)
    return monitor


def _wait(journal: JournalWriter, launcher: int, children: tuple[deque[int], ...], pace: Pace) -> None:
    """Read the lines of the launcher until they end; periodically write the clocks and check the cost."""
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
    """Process one line of the launcher."""
    word, _, rest = line.partition(" ")
    if word == "child" and rest.isdecimal():
        for waiting in children:
            waiting.append(int(rest))
    elif word == "end":
        journal.mark("command_end", rest)


def _finish(journal: JournalWriter, watchers: list[Watcher], *, measure_cores: bool) -> NoReturn:
    """Let every monitor take its last sample, end the journal and exit, even if a monitor hangs.

    ``measure_cores`` while they are idle.
    """
    deadline = time.monotonic() + FINISH_SECONDS
    for watcher in watchers:
        watcher.join(deadline - time.monotonic())
    if measure_cores:
        from perfwrap.monitors.host import pair_speed

        speed = pair_speed.measure()
        if speed:
            journal.fact("cpu_pair_speed", speed)
    cost = journal.series("sidecar", "cpu_seconds")
    journal.samples(time.monotonic_ns(), [(cost, time.process_time())])
    journal.close()
    os._exit(0)


if __name__ == "__main__":
    path, parent, *text = sys.argv[1:]
    main(RunFolder(Path(path)), int(parent), MonitorSettings(**json.loads(text[0] if text else "{}")))

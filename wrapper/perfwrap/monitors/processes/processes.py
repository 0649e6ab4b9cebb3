"""Watch each process of the run: CPU time, state, memory, threads, faults, switches, I/O, file systems.

Of other processes, only the CPU time of their programs (``other_programs.py``).

Everything that is more expensive than /proc/PID/stat is sampled in turn, as often as its share of one core allows; with
many processes stat is, too. A process that lived shorter than the time between two scans is never seen.
"""

from __future__ import annotations

import os
import time
from collections import deque
from itertools import islice
from pathlib import Path

from perfwrap import control_groups
from perfwrap.monitors.host.mounts import Mounts, describe
from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.processes.other_programs import OtherPrograms
from perfwrap.monitors.processes.process_tree import ProcessTree, StartRecords
from perfwrap.monitors.processes.procfs import GONE
from perfwrap.monitors.processes.unreached import UnreachedPythons
from perfwrap.monitors.processes.watched_process import STAT_BYTES, WatchedProcess
from perfwrap.monitors.rounds import SECOND_NS, Round

MAX_PROCESSES = 1000
"""Processes beyond this number are counted as lost instead of watched."""
MAX_A_LOOK = 64
"""With more processes than this, each is sampled only in every second, third… quick sample."""
STRIDE_A_SECOND = 4
"""If each is sampled only in every eighth quick sample, values of once a second are written every other second."""
SCAN_SHARE, SCAN_CREDIT_NS = 0.001, 50_000_000
SLOWEST_SCAN_NS = 1_000_000_000
"""The share of a core for finding new processes, how much of it may be used in advance when many start at once, and
the longest pause on a machine where it costs more."""
CLOSER = (0.0007, 3_000_000, 0)
"""Share, credit and interval of context switches and I/O: once a second if that is cheap enough."""
WEIGHING = (0.0003, 3_000_000, 10 * SECOND_NS)
"""Of the proportional memory (PSS), for which the kernel walks all pages."""
FILES = (0.0002, 2_000_000, 3 * SECOND_NS)
"""Of the open files."""
DELAYS = "proc/sys/kernel/task_delayacct"


class ProcessMonitor:
    """Writes the series and facts of ``process/PID`` for each living process of the tree."""

    def __init__(
        self,
        journal: JournalWriter,
        tree: ProcessTree,
        unreached: UnreachedPythons,
        roots: deque[int],
        run_folder: str,
    ) -> None:
        self._journal, self._tree, self._unreached, self._roots = journal, tree, unreached, roots
        self._run_folder, self._mounts, self._used = run_folder, Mounts(), set[str]()
        self._closer, self._weighing, self._files = (
            Round[WatchedProcess](*pace) for pace in (CLOSER, WEIGHING, FILES)
        )
        self._turn, self._second, self._stride = 0, 0, 1
        self._watched: dict[int, WatchedProcess] = {}
        self._scan_credit_ns, self._last_scan_ns = SCAN_CREDIT_NS, 0
        self._fresh: list[WatchedProcess] = []
        """Processes that were added since the last full sample."""
        self._others = OtherPrograms(journal, os.getppid())
        self._loads = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        self._newest = b""

    def quick(self, now_ns: int) -> None:
        """Sample the CPU time of every process; look for new processes as soon as that is cheap."""
        since_ns = now_ns - self._last_scan_ns
        if self._roots or since_ns * SCAN_SHARE + self._scan_credit_ns > 0 or since_ns >= SLOWEST_SCAN_NS:
            self._scan_for_new(now_ns, since_ns)
        self._turn += 1
        for process in islice(self._watched.values(), self._turn % self._stride, None, self._stride):
            process.quick(now_ns)
        # A process may end soon, so it is examined at once; one that has only forked has no program of its own yet.
        for process in [process for process in self._fresh if not process.has_only_forked()]:
            self._fresh.remove(process)
            self._unreached.ask(process.pid, process.start_ticks)

    def full(self, now_ns: int) -> None:
        """Write the samples, and what is read once a second."""
        self._fresh.clear()
        for pid in self._tree.follow():
            self._enter(pid, now_ns)
        self._second += 1
        pause = -(-self._stride // STRIDE_A_SECOND)
        for place, process in enumerate(list(self._watched.values())):
            process.full((self._second + place) % pause == 0)
            if process.ended:
                self._leave(process)
        self._closer.go(now_ns, lambda process: process.look_closer(now_ns))
        self._weighing.go(now_ns, lambda process: process.weigh(now_ns))
        self._files.go(now_ns, self._look_at_files)
        self._set_stride()
        living = {(pid, process.start_ticks): process.forked for pid, process in self._watched.items()}
        self._unreached.look(now_ns, living)
        self._others.look(now_ns, self._watched)

    def close(self) -> None:
        """Write the remaining explanations and close all files."""
        self._unreached.look(time.monotonic_ns(), {})
        self._others.close(time.monotonic_ns(), self._watched)
        for process in list(self._watched.values()):
            self._leave(process)
        os.close(self._loads)

    def _scan_for_new(self, now_ns: int, since_ns: int) -> None:
        """Scan if a process or thread was created since the last scan, according to the last field of loadavg."""
        newest = os.pread(self._loads, STAT_BYTES, 0).rsplit(None, 1)[-1]
        if newest == self._newest and not self._roots:
            return
        self._newest = newest
        begin = time.thread_time_ns()
        while self._roots:
            self._tree.plant(self._roots.popleft())
        for pid in self._tree.scan():
            self._enter(pid, now_ns)
        earned_ns = self._scan_credit_ns + int(since_ns * SCAN_SHARE)
        left_ns = min(SCAN_CREDIT_NS, earned_ns) - (time.thread_time_ns() - begin)
        self._scan_credit_ns = max(left_ns, -int(SLOWEST_SCAN_NS * SCAN_SHARE))
        self._last_scan_ns = now_ns

    def _enter(self, pid: int, now_ns: int) -> None:
        """Start to watch a process, unless it has ended."""
        if pid in self._watched:  # The former process of this pid ended since the last full sample.
            self._watched[pid].full(True)
            self._leave(self._watched[pid])
        if len(self._watched) >= MAX_PROCESSES:
            self._journal.lost("processes", 1)
            return
        try:
            self._watched[pid] = WatchedProcess(pid, self._journal)
        except GONE:
            return
        self._closer.enter(self._watched[pid])
        self._files.enter(self._watched[pid])
        # The memory of a process at its start is not typical.
        self._weighing.enter(self._watched[pid], now_ns)
        self._fresh.append(self._watched[pid])
        self._unreached.expect(now_ns, pid, self._watched[pid].start_ticks)

    def _set_stride(self) -> None:
        """Sample each process less often if there are many, and record that."""
        stride = -(-len(self._watched) // MAX_A_LOOK) or 1
        if stride != self._stride:
            self._stride = stride
            self._journal.thin("processes", stride)

    def _look_at_files(self, process: WatchedProcess) -> None:
        """Record, once for each, which file systems are read from and written to."""
        try:
            found = self._mounts.of_open_files(process.pid, self._run_folder)
        except OSError:
            return  # It has ended, or belongs to another user.
        for use, mount in found:
            key = f"{use}/{mount.point}"
            if key not in self._used:
                self._used.add(key)
                self._journal.fact(key, describe(mount))

    def _leave(self, process: WatchedProcess) -> None:
        process.close()
        del self._watched[process.pid]


def watch(journal: JournalWriter, starts: Path, hook: str, roots: deque[int]) -> ProcessMonitor:
    """Start to watch the processes whose pids arrive in ``roots``, and all their descendants."""
    records = StartRecords(starts)
    if control_groups.text(Path("/", DELAYS)) != "1":
        journal.not_watched("block I/O delay", "not recorded by this kernel (kernel.task_delayacct is 0)")
    unreached = UnreachedPythons(journal, records, hook)
    return ProcessMonitor(journal, ProcessTree(records), unreached, roots, str(starts.parent))

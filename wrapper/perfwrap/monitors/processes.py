"""Watch each process of the run: processor, memory, threads, I/O, context switches, major faults.

Ten times a second only /proc/PID/stat is read, through a file that stays open; the dearer files once a
second. Processor time is counted in ticks of 10 ms: one value of a tenth of a second is rough, their mean is
exact. Context switches are those of the process's main thread, which is what the kernel tells without asking
for every thread. A process that lived shorter than the time between two scans was never seen.
"""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path

from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.process_tree import ProcessTree, StartRecords
from perfwrap.monitors.procfs import (
    FORKED_WITHOUT_EXEC,
    GONE,
    TICKS_PER_SECOND,
    Stat,
    parse_stat,
    read_command,
    read_numbers,
)
from perfwrap.monitors.unreached import UnreachedPythons

MOST_PROCESSES = 1000
"""More than this many at a time are counted as lost instead of watched."""
SCAN_SHARE, SCAN_CREDIT_NS = 0.001, 50_000_000
SLOWEST_SCAN_NS = 1_000_000_000
"""Looking for new processes may take this part of a core and, when many start at once, this much in advance;
on a machine where it costs more it waits, but not longer."""
DEAD = (b"Z", b"X")
STAT_BYTES = 1024


class WatchedProcess:
    """One process and what it had used at the last look."""

    __slots__ = ("pid", "forked", "ended", "_file", "_taken", "_quick", "_full", "_last", "_last_full", "_io")

    def __init__(self, pid: int, journal: JournalWriter) -> None:
        """Open its files; an OSError of GONE when it ended meanwhile."""
        self.pid = pid
        self.ended = False
        self._file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._taken: list[tuple[int, bytes]] = []
        self._quick = journal.series(f"process/{pid}", "cpu_cores", keep=False)
        self._full: list[int] = []
        self._io = True
        try:
            stat = parse_stat(os.pread(self._file, STAT_BYTES, 0))
        except OSError:
            os.close(self._file)
            raise
        self._last = time.monotonic_ns(), stat
        self._last_full: tuple[int, list[int]] | None = None
        self.forked = bool(stat.flags & FORKED_WITHOUT_EXEC)
        self._describe(journal, stat)

    def quick(self, now_ns: int) -> None:
        """Take its processor time and memory as they are; nothing once it has ended."""
        if not self.ended:
            try:
                self._taken.append((now_ns, os.pread(self._file, STAT_BYTES, 0)))
            except GONE:
                self.ended = True

    def full(self, now_ns: int, journal: JournalWriter) -> None:
        """Write the processor use from look to look, then memory, threads and the last second's rates."""
        taken, self._taken = self._taken, []
        for time_ns, text in taken:
            self._write(time_ns, parse_stat(text), journal)
        if not self.ended:
            try:
                journal.samples(now_ns, self._full_values(now_ns, journal))
            except GONE:
                self.ended = True

    def has_only_forked(self) -> bool:
        """Say whether at the last quick look it still ran its parent's program."""
        text = self._taken[-1][1] if self._taken else b""
        return bool(parse_stat(text).flags & FORKED_WITHOUT_EXEC) if text else self.forked

    @property
    def start_ticks(self) -> int:
        """When it started; with the pid its name for good."""
        return self._last[1].start_ticks

    def close(self) -> None:
        """Let go of its file."""
        os.close(self._file)

    def _write(self, now_ns: int, stat: Stat, journal: JournalWriter) -> None:
        if stat.state in DEAD:
            self.ended = True
            return
        before_ns, before = self._last
        self._last = now_ns, stat
        if self.forked and not stat.flags & FORKED_WITHOUT_EXEC:
            self.forked = False
            self._describe(journal, stat)
        if now_ns > before_ns:
            seconds = (now_ns - before_ns) / 1e9
            cores = max(0, stat.ticks - before.ticks) / TICKS_PER_SECOND / seconds
            journal.samples(now_ns, [(self._quick, cores)])

    def _full_values(self, now_ns: int, journal: JournalWriter) -> list[tuple[int, float]]:
        if not self._full:
            self._full = [
                journal.series(f"process/{self.pid}", metric, keep=False) for metric in FULL_METRICS
            ]
        stat = self._last[1]
        totals = [stat.major_faults, *self._switches(), *self._transfers(journal)]
        values = [(self._full[0], float(stat.resident_bytes)), (self._full[1], float(stat.threads))]
        if self._last_full is not None and now_ns > self._last_full[0]:
            seconds = (now_ns - self._last_full[0]) / 1e9
            steps = zip(self._full[2:], self._last_full[1], totals, strict=False)
            values += [(series, max(0, now - before) / seconds) for series, before, now in steps]
        self._last_full = now_ns, totals
        return values

    def _switches(self) -> list[int]:
        keys = (b"\nvoluntary_ctxt_switches:", b"\nnonvoluntary_ctxt_switches:")
        return read_numbers(f"/proc/{self.pid}/status", keys)

    def _transfers(self, journal: JournalWriter) -> list[int]:
        if self._io:
            try:
                return read_numbers(f"/proc/{self.pid}/io", (b"\nread_bytes:", b"\nwrite_bytes:"))
            except PermissionError:
                self._io = False
                journal.not_watched(
                    f"process/{self.pid}/io", "the system does not show it to this user", keep=False
                )
        return []

    def _describe(self, journal: JournalWriter, stat: Stat) -> None:
        """Write down who the process is; done again when it executes another program."""
        entity = f"process/{self.pid}"
        for key, value in (
            ("start_ticks", str(stat.start_ticks)),
            ("ppid", str(stat.parent)),
            ("cmdline", read_command(self.pid)),
        ):
            if value:
                journal.fact(f"{entity}/{key}", value, keep=False)


FULL_METRICS = (
    "rss_bytes",
    "threads",
    "major_faults_per_s",
    "voluntary_switches_per_s",
    "involuntary_switches_per_s",
    "read_bytes_per_s",
    "write_bytes_per_s",
)
"""In the order of WatchedProcess.full."""


class ProcessMonitor:
    """Writes the series and facts of ``process/PID`` for each living process of the tree."""

    def __init__(
        self, journal: JournalWriter, tree: ProcessTree, unreached: UnreachedPythons, roots: deque[int]
    ) -> None:
        self._journal, self._tree, self._unreached, self._roots = journal, tree, unreached, roots
        self._watched: dict[int, WatchedProcess] = {}
        self._scan_credit_ns, self._last_scan_ns = SCAN_CREDIT_NS, 0
        self._fresh: list[WatchedProcess] = []
        """Processes that entered since the last full look."""
        self._loads = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        self._newest = b""

    def quick(self, now_ns: int) -> None:
        """Take every process's processor time; look for new processes as soon as that is cheap."""
        since_ns = now_ns - self._last_scan_ns
        if self._roots or since_ns * SCAN_SHARE + self._scan_credit_ns > 0 or since_ns >= SLOWEST_SCAN_NS:
            self._scan_for_new(now_ns, since_ns)
        for process in self._watched.values():
            process.quick(now_ns)
        # A process that soon ends must be asked soon; one that has only forked is nobody yet.
        for process in [process for process in self._fresh if not process.has_only_forked()]:
            self._fresh.remove(process)
            self._unreached.ask(process.pid, process.start_ticks)

    def full(self, now_ns: int) -> None:
        """Write what was taken, and what is read once a second."""
        self._fresh.clear()
        for pid in self._tree.follow():
            self._enter(pid, now_ns)
        for process in list(self._watched.values()):
            process.full(now_ns, self._journal)
            if process.ended:
                self._leave(process)
        living = {(pid, process.start_ticks): process.forked for pid, process in self._watched.items()}
        self._unreached.look(now_ns, living)

    def close(self) -> None:
        """Explain what is still unexplained and let go of all files."""
        self._unreached.look(time.monotonic_ns(), {})
        for process in list(self._watched.values()):
            self._leave(process)
        os.close(self._loads)

    def _scan_for_new(self, now_ns: int, since_ns: int) -> None:
        """Scan if a process or thread was made since the last time, which the last field of loadavg tells."""
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
        """Start to watch a process, unless it ended meanwhile."""
        if pid in self._watched:  # Its former owner ended since the last full look.
            self._watched[pid].full(now_ns, self._journal)
            self._leave(self._watched[pid])
        if len(self._watched) >= MOST_PROCESSES:
            self._journal.lost("processes", 1)
            return
        try:
            self._watched[pid] = WatchedProcess(pid, self._journal)
        except GONE:
            return
        self._fresh.append(self._watched[pid])
        self._unreached.expect(now_ns, pid, self._watched[pid].start_ticks)

    def _leave(self, process: WatchedProcess) -> None:
        process.close()
        del self._watched[process.pid]


def watch(journal: JournalWriter, starts: Path, hook: str, roots: deque[int]) -> ProcessMonitor:
    """Start to watch the processes whose pids come in ``roots``, and all that they start."""
    records = StartRecords(starts)
    return ProcessMonitor(journal, ProcessTree(records), UnreachedPythons(journal, records, hook), roots)

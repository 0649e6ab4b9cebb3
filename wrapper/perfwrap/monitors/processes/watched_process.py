"""One process and its resource use between samples.

Ten times a second only /proc/PID/stat is read, through a file that stays open; once a second the values are written.
A process that used no CPU time for a second is read once a second until it does. CPU time is counted in ticks of
10 ms: one value of a tenth of a second is rough, their mean is exact. States and context switches are those of the
main thread, because other threads would have to be read one by one. Every fourth sample also reads in which kernel
function that thread sleeps, to find waits for locks.
"""

from __future__ import annotations

import os
import signal
import time

from perfwrap.monitors.monitor_journal import JournalWriter
from perfwrap.monitors.processes.procfs import (
    FORKED_WITHOUT_EXEC,
    GONE,
    TICKS_PER_SECOND,
    Stat,
    parse_sample,
    parse_stat,
    read_command,
    read_exit,
    read_kibibytes,
    read_numbers,
    read_status,
    read_waiting,
)

DEAD = (b"Z", b"X")
RUNNING, DISK_WAIT, STOPPED = b"R", b"D", (b"T", b"t")
SLEEPING = b"S"
STAT_BYTES = 1024
LOCK_LOOKS = 4
"""Lock waits are read once in this many quick samples, because that costs as much as a sample."""
FILE_LOCKS = (b"lock_inode_wait", b"fcntl_setlk", b"do_lock_file_wait")
LOCKS = (b"futex", b"semtimedop")
"""Parts of the names of kernel functions in which a thread waits for a lock on a file (flock, lockf), or for a lock,
semaphore or condition in memory."""
SLEEP_NS = 900_000_000
"""A little less than a second, so that a sleeping process is sampled when all are written."""
CHEAP_METRICS = ("rss_bytes", "threads", "running_share", "disk_wait_share")
CHEAP_RATES = ("cpu_system_cores", "major_faults_per_s", "minor_faults_per_s")
SWITCH_RATES = ("voluntary_switches_per_s", "involuntary_switches_per_s")
IO_RATES = (
    "read_bytes_per_s",
    "write_bytes_per_s",
    "syscall_read_bytes_per_s",
    "syscall_write_bytes_per_s",
)
"""Bytes from and to disks, and bytes that the program requested, including page cache, pipes and sockets."""
FULL_METRICS = (*CHEAP_METRICS, *CHEAP_RATES, *SWITCH_RATES, *IO_RATES)
"""Values that are written once a second; context switches and I/O as often as their share of a core allows."""
SWITCHES = (b"\nvoluntary_ctxt_switches:", b"\nnonvoluntary_ctxt_switches:")
TRANSFERS = (b"\nread_bytes:", b"\nwrite_bytes:", b"rchar:", b"\nwchar:")
LARGEST_PSS_BYTES = 4 << 30
"""Above this resident size the kernel's walk over the pages could delay the program."""


class WatchedProcess:
    """One process and its resource use at the last sample."""

    __slots__ = (
        "pid",
        "forked",
        "ended",
        "_file",
        "_journal",
        "_taken",
        "_states",
        "_waits",
        "_looks",
        "_due_ns",
        "_series",
        "_last_sample",
        "_last",
        "_totals",
        "_hidden",
    )

    def __init__(self, pid: int, journal: JournalWriter) -> None:
        """Open its files; an OSError of GONE if it has ended."""
        self.pid = pid
        self.ended = False
        self._journal = journal
        self._file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._taken: list[tuple[int, bytes]] = []
        self._due_ns = 0
        """It is not sampled before then."""
        self._states: list[bytes] = []
        self._waits: list[bytes] = []
        """The kernel function in which it slept, or empty."""
        self._looks = 0
        self._series: dict[str, int] = {}
        self._hidden: set[str] = set()
        try:
            stat = parse_stat(os.pread(self._file, STAT_BYTES, 0))
        except OSError:
            os.close(self._file)
            raise
        now_ns = time.monotonic_ns()
        self._last_sample = now_ns, stat.user_ticks + stat.system_ticks
        """When its CPU time was last read, and its value."""
        self._last = now_ns, stat
        self._totals: dict[str, tuple[int, list[int]]] = {}
        self.forked = bool(stat.flags & FORKED_WITHOUT_EXEC)
        self._describe(stat)

    def quick(self, now_ns: int) -> None:
        """Sample its CPU time and memory, unless it sleeps or has ended."""
        if now_ns >= self._due_ns and not self.ended:
            try:
                self._taken.append((now_ns, os.pread(self._file, STAT_BYTES, 0)))
                self._looks += 1
                if self._looks % LOCK_LOOKS == 0 and "wait" not in self._hidden:
                    self._look_for_lock(self._taken[-1][1])
            except GONE:
                self.ended = True

    def full(self, whole: bool) -> None:
        """Write the CPU use between samples; with ``whole`` also the other values of the last sample."""
        taken, self._taken = self._taken, []
        self._states += [self._write(time_ns, text) for time_ns, text in taken]
        if whole and taken and not self.ended:
            time_ns, text = taken[-1]
            stat = parse_stat(text)
            worked = (
                stat.user_ticks + stat.system_ticks - self._last[1].user_ticks - self._last[1].system_ticks
            )
            self._due_ns = 0 if worked else time_ns + SLEEP_NS
            self._write_stat(time_ns, stat)
            self._states.clear()
            self._write_waits(time_ns)

    def look_closer(self, now_ns: int) -> None:
        """Write context switches and I/O since the last call, and memory without files; several times as expensive."""
        try:
            switches, anonymous = read_status(self.pid, SWITCHES)
            self._write_rates(now_ns, SWITCH_RATES, switches)
            if anonymous is not None:
                self._journal.samples(now_ns, [(self._number("anonymous_bytes"), float(anonymous))])
            if "io" not in self._hidden:
                self._write_rates(now_ns, IO_RATES, read_numbers(f"/proc/{self.pid}/io", TRANSFERS))
        except GONE:
            self.ended = True
        except PermissionError:
            self._hide("io")

    def weigh(self, now_ns: int) -> None:
        """Write its proportional memory (PSS): expensive, because the kernel walks its pages."""
        if "pss" in self._hidden:
            return
        if self._last[1].resident_bytes > LARGEST_PSS_BYTES:
            self._hide("pss", "it uses so much memory that reading it would stop the process for too long")
            return
        try:
            found = read_kibibytes(f"/proc/{self.pid}/smaps_rollup", b"\nPss:")
        except GONE:
            return  # It has ended, or the kernel is older than 4.14.
        except PermissionError:
            self._hide("pss")
            return
        if found:
            self._journal.samples(now_ns, [(self._number("pss_bytes"), float(found))])

    def has_only_forked(self) -> bool:
        """Return whether it still ran its parent's program at the last quick sample."""
        text = self._taken[-1][1] if self._taken else b""
        return bool(parse_sample(text).flags & FORKED_WITHOUT_EXEC) if text else self.forked

    @property
    def start_ticks(self) -> int:
        """Its start time, which together with the pid identifies it."""
        return self._last[1].start_ticks

    def close(self) -> None:
        """Close its file; it is not sampled any more."""
        self.ended = True
        os.close(self._file)

    def _write(self, now_ns: int, text: bytes) -> bytes:
        """Write the CPU use up to a sample; return its state."""
        sample = parse_sample(text)
        if sample.state in DEAD:
            self._end(text)
            return sample.state
        if self.forked and not sample.flags & FORKED_WITHOUT_EXEC:
            self.forked = False
            self._describe(parse_stat(text))
        before_ns, before = self._last_sample
        self._last_sample = now_ns, sample.ticks
        if now_ns > before_ns:
            cores = max(0, sample.ticks - before) / TICKS_PER_SECOND / ((now_ns - before_ns) / 1e9)
            self._journal.samples(now_ns, [(self._number("cpu_cores"), cores)])
        return sample.state

    def _write_stat(self, now_ns: int, stat: Stat) -> None:
        states, self._last = self._states, (now_ns, stat)
        shares = {
            "running_share": states.count(RUNNING) / len(states),
            "disk_wait_share": states.count(DISK_WAIT) / len(states),
        }
        stopped = sum(map(states.count, STOPPED)) / len(states)
        if stopped or "stopped_share" in self._series:
            shares["stopped_share"] = stopped
        values = {"rss_bytes": float(stat.resident_bytes), "threads": float(stat.threads)} | shares
        self._journal.samples(now_ns, [(self._number(metric), value) for metric, value in values.items()])
        # Nanoseconds, so that the rate is in seconds per second, which are cores.
        system_ns = stat.system_ticks * 1_000_000_000 // TICKS_PER_SECOND
        self._write_rates(now_ns, CHEAP_RATES, [system_ns, stat.major_faults, stat.minor_faults])
        if stat.block_ticks:
            block_ns = stat.block_ticks * 1_000_000_000 // TICKS_PER_SECOND
            self._write_rates(now_ns, ("block_io_wait_cores",), [block_ns])

    def _look_for_lock(self, text: bytes) -> None:
        """Store the function that it sleeps in; some kernels never show it."""
        if parse_sample(text).state != SLEEPING:
            self._waits.append(b"")
            return
        try:
            where = read_waiting(self.pid)
        except PermissionError:
            self._hide("wait")
            return
        if where:
            self._waits.append(where)

    def _write_waits(self, now_ns: int) -> None:
        """Write the shares of these samples in which it waited for a lock."""
        waits, self._waits = self._waits, []
        if not waits:
            return
        for metric, names in (("file_lock_wait_share", FILE_LOCKS), ("lock_wait_share", LOCKS)):
            found = sum(any(name in where for name in names) for where in waits)
            self._journal.samples(now_ns, [(self._number(metric), found / len(waits))])

    def _write_rates(self, now_ns: int, metrics: tuple[str, ...], totals: list[int]) -> None:
        """Write the growth rates of totals since the last call."""
        before = self._totals.get(metrics[0])
        self._totals[metrics[0]] = now_ns, totals
        if before is None or now_ns <= before[0]:
            return
        seconds = (now_ns - before[0]) / 1e9
        values = []
        for metric, now, then in zip(metrics, totals, before[1], strict=True):
            scale = 1e-9 if metric.endswith("_cores") else 1
            values.append((self._number(metric), max(0, now - then) * scale / seconds))
        self._journal.samples(now_ns, values)

    def _number(self, metric: str) -> int:
        """Return the series of a metric, which is created with its first value."""
        if metric not in self._series:
            self._series[metric] = self._journal.series(f"process/{self.pid}", metric, keep=False)
        return self._series[metric]

    def _hide(self, what: str, why: str = "not readable for this user") -> None:
        """Record, once, what is not watched of this process."""
        self._hidden.add(what)
        self._journal.not_watched(f"process/{self.pid}/{what}", why, keep=False)

    def _end(self, stat: bytes) -> None:
        """Record how it ended, which is visible until its parent has waited for it."""
        self.ended = True
        status = read_exit(stat)
        if not status:
            return  # It succeeded, or this user may not read its status.
        how = f"code {os.WEXITSTATUS(status)}"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            how = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            self._journal.mark("process_killed", f"process/{self.pid}: {how}")
        self._journal.fact(f"process/{self.pid}/exit", how, keep=False)

    def _describe(self, stat: Stat) -> None:
        """Record the facts about the process; repeated when it executes another program."""
        entity = f"process/{self.pid}"
        for key, value in (
            ("start_ticks", str(stat.start_ticks)),
            ("ppid", str(stat.parent)),
            ("cmdline", read_command(self.pid)),
        ):
            if value:
                self._journal.fact(f"{entity}/{key}", value, keep=False)

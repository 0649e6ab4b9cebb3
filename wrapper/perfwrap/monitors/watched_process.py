"""One process and what it uses, from look to look.

Ten times a second only /proc/PID/stat is read, through a file that stays open, and once a second what was taken
is written; a process that used no processor for a second is read once a second until it does. Processor time is
counted in ticks of 10 ms: one value of a tenth of a second is rough, their mean is exact. States and context
switches are those of the process's main thread, which is what the kernel tells without asking for every thread. At
every fourth look it is asked, too, in which function of the kernel that thread sleeps: whether for a lock.
"""

from __future__ import annotations

import os
import signal
import time

from perfwrap.monitors.journal import JournalWriter
from perfwrap.monitors.procfs import (
    FORKED_WITHOUT_EXEC,
    GONE,
    TICKS_PER_SECOND,
    Stat,
    parse_look,
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
"""Every so many quick looks the lock is looked for: that costs as much as a look."""
FILE_LOCKS = (b"lock_inode_wait", b"fcntl_setlk", b"do_lock_file_wait")
LOCKS = (b"futex", b"semtimedop")
"""Parts of the names of the kernel's functions in which a thread waits: for a lock on a file (flock, lockf), or for a
lock, semaphore or condition in memory."""
SLEEP_NS = 900_000_000
"""A little less than a second, so that a process that sleeps is looked at when all are written."""
CHEAP_METRICS = ("rss_bytes", "threads", "running_share", "disk_wait_share")
CHEAP_RATES = ("cpu_system_cores", "major_faults_per_s", "minor_faults_per_s")
SWITCH_RATES = ("voluntary_switches_per_s", "involuntary_switches_per_s")
IO_RATES = (
    "read_bytes_per_s",
    "write_bytes_per_s",
    "syscall_read_bytes_per_s",
    "syscall_write_bytes_per_s",
)
"""What came from and went to disks, and what the program asked for, from page cache, pipes and sockets, too."""
FULL_METRICS = (*CHEAP_METRICS, *CHEAP_RATES, *SWITCH_RATES, *IO_RATES)
"""What is written once a second; of the switches and the I/O as often as there is time for it."""
SWITCHES = (b"\nvoluntary_ctxt_switches:", b"\nnonvoluntary_ctxt_switches:")
TRANSFERS = (b"\nread_bytes:", b"\nwrite_bytes:", b"rchar:", b"\nwchar:")
LARGEST_PSS_BYTES = 4 << 30
"""Above this resident size the kernel's walk over the pages could hold the program up."""


class WatchedProcess:
    """One process and what it had used at the last look."""

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
        "_look",
        "_last",
        "_totals",
        "_hidden",
    )

    def __init__(self, pid: int, journal: JournalWriter) -> None:
        """Open its files; an OSError of GONE when it ended meanwhile."""
        self.pid = pid
        self.ended = False
        self._journal = journal
        self._file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        self._taken: list[tuple[int, bytes]] = []
        self._due_ns = 0
        """It is not looked at before then."""
        self._states: list[bytes] = []
        self._waits: list[bytes] = []
        """In which function of the kernel it slept, empty where it did not."""
        self._looks = 0
        self._series: dict[str, int] = {}
        self._hidden: set[str] = set()
        try:
            stat = parse_stat(os.pread(self._file, STAT_BYTES, 0))
        except OSError:
            os.close(self._file)
            raise
        now_ns = time.monotonic_ns()
        self._look = now_ns, stat.user_ticks + stat.system_ticks
        """When its processor time was last looked at, and how much that was."""
        self._last = now_ns, stat
        self._totals: dict[str, tuple[int, list[int]]] = {}
        self.forked = bool(stat.flags & FORKED_WITHOUT_EXEC)
        self._describe(stat)

    def quick(self, now_ns: int) -> None:
        """Take its processor time and memory as they are; nothing while it sleeps and once it has ended."""
        if now_ns >= self._due_ns and not self.ended:
            try:
                self._taken.append((now_ns, os.pread(self._file, STAT_BYTES, 0)))
                self._looks += 1
                if self._looks % LOCK_LOOKS == 0 and "wait" not in self._hidden:
                    self._look_for_lock(self._taken[-1][1])
            except GONE:
                self.ended = True

    def full(self, whole: bool) -> None:
        """Write the processor use from look to look; if ``whole`` what else the last look tells."""
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
        """Write context switches and I/O since the last time, and memory without files: costs several times as much."""
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
        """Write its memory with what it shares divided by those who share it: dear, the kernel walks its pages."""
        if "pss" in self._hidden:
            return
        if self._last[1].resident_bytes > LARGEST_PSS_BYTES:
            self._hide("pss", "it holds too much memory to be walked through without holding it up")
            return
        try:
            found = read_kibibytes(f"/proc/{self.pid}/smaps_rollup", b"\nPss:")
        except GONE:
            return  # Gone, or a kernel before 4.14.
        except PermissionError:
            self._hide("pss")
            return
        if found:
            self._journal.samples(now_ns, [(self._number("pss_bytes"), float(found))])

    def has_only_forked(self) -> bool:
        """Say whether at the last quick look it still ran its parent's program."""
        text = self._taken[-1][1] if self._taken else b""
        return bool(parse_look(text).flags & FORKED_WITHOUT_EXEC) if text else self.forked

    @property
    def start_ticks(self) -> int:
        """When it started; with the pid its name for good."""
        return self._last[1].start_ticks

    def close(self) -> None:
        """Let go of its file; nobody is to look at it any more."""
        self.ended = True
        os.close(self._file)

    def _write(self, now_ns: int, text: bytes) -> bytes:
        """Write the processor use up to a look; return the state it was in."""
        look = parse_look(text)
        if look.state in DEAD:
            self._end(text)
            return look.state
        if self.forked and not look.flags & FORKED_WITHOUT_EXEC:
            self.forked = False
            self._describe(parse_stat(text))
        before_ns, before = self._look
        self._look = now_ns, look.ticks
        if now_ns > before_ns:
            cores = max(0, look.ticks - before) / TICKS_PER_SECOND / ((now_ns - before_ns) / 1e9)
            self._journal.samples(now_ns, [(self._number("cpu_cores"), cores)])
        return look.state

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
        """Take down what it sleeps in; a kernel that shows nothing of any sleep does not show it."""
        if parse_look(text).state != SLEEPING:
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
        """Write the shares of these looks at which it waited for a lock."""
        waits, self._waits = self._waits, []
        if not waits:
            return
        for metric, names in (("file_lock_wait_share", FILE_LOCKS), ("lock_wait_share", LOCKS)):
            found = sum(any(name in where for name in names) for where in waits)
            self._journal.samples(now_ns, [(self._number(metric), found / len(waits))])

    def _write_rates(self, now_ns: int, metrics: tuple[str, ...], totals: list[int]) -> None:
        """Write how fast totals have grown since the last time."""
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
        """Return the series of a metric, which begins when it has its first value."""
        if metric not in self._series:
            self._series[metric] = self._journal.series(f"process/{self.pid}", metric, keep=False)
        return self._series[metric]

    def _hide(self, what: str, why: str = "the system does not show it to this user") -> None:
        """Write down, once, what of this process is not watched."""
        self._hidden.add(what)
        self._journal.not_watched(f"process/{self.pid}/{what}", why, keep=False)

    def _end(self, stat: bytes) -> None:
        """Write down how it ended, when its parent has not asked yet and that can therefore be seen."""
        self.ended = True
        status = read_exit(stat)
        if not status:
            return  # Ended well, or nothing is told to this user.
        how = f"code {os.WEXITSTATUS(status)}"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            how = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
            self._journal.mark("process_killed", f"process/{self.pid}: {how}")
        self._journal.fact(f"process/{self.pid}/exit", how, keep=False)

    def _describe(self, stat: Stat) -> None:
        """Write down who the process is; done again when it executes another program."""
        entity = f"process/{self.pid}"
        for key, value in (
            ("start_ticks", str(stat.start_ticks)),
            ("ppid", str(stat.parent)),
            ("cmdline", read_command(self.pid)),
        ):
            if value:
                self._journal.fact(f"{entity}/{key}", value, keep=False)

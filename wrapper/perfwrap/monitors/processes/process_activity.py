"""Whether processes are active: their CPU time and I/O between two samples, and which of them are stopped.

A program that waits for something that never comes uses nothing. A program that compiles, saves, validates or prepares
data uses CPU time or I/O, in its own process or in its children.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from perfwrap.monitors.processes.procfs import TICKS_PER_SECOND, parse_stat, read_numbers, read_status

SECOND_NS = 1_000_000_000
BUSY_CORES = 0.05
"""A waiting process uses less of a core than this, even with threads that wake up ten times a second."""
BUSY_BYTES_PER_S = 100_000
"""A waiting process reads and writes fewer bytes per second than this, including page cache, pipes and sockets."""
BUSY_SWITCHES_PER_S = 30.0
"""Wake-ups per second of the main thread during network traffic: an upload uses hardly any CPU time."""
STOPPED, RUNNABLE = (b"T", b"t"), b"R"
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass(frozen=True)
class Use:
    """The resource use of a process at one moment."""

    ticks: int
    moved_bytes: int | None
    switches: int
    """How often its main thread has waited."""
    stopped: bool
    runnable: bool = False
    """Whether its main thread was runnable at that moment: on a busy machine it may wait long for a core."""


@dataclass(frozen=True)
class Activity:
    """The resource use of some processes at one moment, without those that had ended."""

    time_ns: int
    uses: dict[int, Use]

    @property
    def any_stopped(self) -> bool:
        """Whether one of them is stopped (SIGSTOP, a debugger)."""
        return any(use.stopped for use in self.uses.values())


def look(now_ns: int, pids: Iterable[int]) -> Activity:
    """Sample these processes."""
    uses = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                stat = parse_stat(file.read())
            switches, _ = read_status(pid, (b"\nvoluntary_ctxt_switches:",))
        except GONE:
            continue
        ticks = stat.user_ticks + stat.system_ticks
        state = stat.state
        uses[pid] = Use(ticks, _moved_bytes(pid), switches[0], state in STOPPED, state == RUNNABLE)
    return Activity(now_ns, uses)


def at_work(before: Activity, now: Activity, talkers: Collection[int] = ()) -> list[int]:
    """Return the processes that were active between two samples; new ones count as active.

    Wake-ups count only for ``talkers``: a launcher that only watches its children wakes up, too.
    """
    seconds = max(1, now.time_ns - before.time_ns) / SECOND_NS
    found = []
    for pid, use in now.uses.items():
        then = before.uses.get(pid)
        if then is None or _worked(then, use, seconds, pid in talkers):
            found.append(pid)
    return found


def _worked(then: Use, now: Use, seconds: float, talks: bool) -> bool:
    """Return whether that use is more than that of a waiting process."""
    if now.runnable:
        return True
    # CPU time is counted in ticks: in a short time, a single tick does not count.
    ticks = now.ticks - then.ticks - 1
    if ticks / TICKS_PER_SECOND > BUSY_CORES * seconds:
        return True
    if talks and now.switches - then.switches > BUSY_SWITCHES_PER_S * seconds:
        return True
    if now.moved_bytes is None or then.moved_bytes is None:
        return False
    return now.moved_bytes - then.moved_bytes > BUSY_BYTES_PER_S * seconds


def _moved_bytes(pid: int) -> int | None:
    """Return the bytes that a process has read and written so far; None if unknown."""
    try:
        return sum(read_numbers(f"/proc/{pid}/io", (b"rchar:", b"\nwchar:")))
    except GONE:
        return None

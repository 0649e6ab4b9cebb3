"""Whether processes are at work: what they used of the processor and moved between two looks, and who is stopped.

A program that waits for something that never comes uses nothing. One that compiles, saves, validates or prepares data
does, in itself or in what it has started.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from perfwrap.monitors.procfs import TICKS_PER_SECOND, parse_stat, read_numbers, read_status

SECOND_NS = 1_000_000_000
BUSY_CORES = 0.05
"""A process that waits uses less of a core than this, also with threads in it that look up ten times a second."""
BUSY_BYTES_PER_S = 100_000
"""What a process that waits neither reads nor writes, page cache, pipes and sockets included."""
BUSY_SWITCHES_PER_S = 30.0
"""So often the main thread of a process wakes up that talks to somebody: an upload uses hardly any processor."""
STOPPED, RUNNABLE = (b"T", b"t"), b"R"
GONE = (FileNotFoundError, ProcessLookupError, PermissionError)


@dataclass(frozen=True)
class Use:
    """What a process had used at one moment."""

    ticks: int
    moved_bytes: int | None
    switches: int
    """How often its main thread had waited."""
    stopped: bool
    runnable: bool = False
    """Whether its main thread wanted a core at that moment: on a crowded machine it may not get one for long."""


@dataclass(frozen=True)
class Activity:
    """What some processes had used at one moment; those that had ended are not there."""

    time_ns: int
    uses: dict[int, Use]

    @property
    def any_stopped(self) -> bool:
        """Whether somebody has stopped one of them (SIGSTOP, a debugger)."""
        return any(use.stopped for use in self.uses.values())


def look(now_ns: int, pids: Iterable[int]) -> Activity:
    """Look at these processes."""
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
    """Return the processes that were at work between two looks; new ones are.

    Of ``talkers`` alone the waking up counts: a launcher that looks after its children does nothing else.
    """
    seconds = max(1, now.time_ns - before.time_ns) / SECOND_NS
    found = []
    for pid, use in now.uses.items():
        then = before.uses.get(pid)
        if then is None or _worked(then, use, seconds, pid in talkers):
            found.append(pid)
    return found


def _worked(then: Use, now: Use, seconds: float, talks: bool) -> bool:
    """Say whether that use is more than that of a process that waits."""
    if now.runnable:
        return True
    # Processor time is counted in ticks: a single one is nothing in a short time.
    ticks = now.ticks - then.ticks - 1
    if ticks / TICKS_PER_SECOND > BUSY_CORES * seconds:
        return True
    if talks and now.switches - then.switches > BUSY_SWITCHES_PER_S * seconds:
        return True
    if now.moved_bytes is None or then.moved_bytes is None:
        return False
    return now.moved_bytes - then.moved_bytes > BUSY_BYTES_PER_S * seconds


def _moved_bytes(pid: int) -> int | None:
    """Return what a process has read and written so far; None where the system does not tell."""
    try:
        return sum(read_numbers(f"/proc/{pid}/io", (b"rchar:", b"\nwchar:")))
    except GONE:
        return None

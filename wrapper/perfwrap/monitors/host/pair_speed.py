"""How much two neighbouring virtual cores slow each other down, measured after the command has ended.

Virtual cores may be threads of one core, and a virtual machine hides which are. Two threads hash (arithmetic) and add
up (memory) on two cores, first one alone, then both at the same time. CPU time is compared, so that programs that wait
for the same cores do not count; the neighbour must be idle while one works alone. Takes 60 ms, on a busy machine up to
0.4 s.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from perfwrap.control_groups import text

WORK_NS = 10_000_000
MAX_SECONDS = 0.4
"""After this time, the neighbour was not idle often enough."""
WORKS: tuple[tuple[Callable[[bytes], object], int], ...] = (
    (lambda data: hashlib.sha256(data).digest(), 1 << 16),
    (zlib.adler32, 1 << 23),
)
"""Both release Python's lock; with the bytes of each call."""


def measure(root: Path = Path("/")) -> str:
    """Return the speed of each of two busy cores over that of one, for each kind of work.

    Empty if there is one core, or if the other was never idle.
    """
    cores = pair(root)
    if len(cores) < 2:
        return ""
    found = []
    until = time.monotonic() + MAX_SECONDS
    for work, size in WORKS:
        data = bytes(size)
        alone = 0.0
        while not alone and time.monotonic() < until:
            alone = _alone(work, data, cores, until, root)
        both = _speeds(work, data, cores, until)
        if not alone or not both:
            return ""
        found.append(min(1.0, sum(both) / len(both) / alone))
    return " ".join(f"{speed:.2f}" for speed in found)


def pair(root: Path = Path("/")) -> list[int]:
    """Return two usable cores that are most likely threads of one: as the kernel says, else the first two."""
    usable = sorted(os.sched_getaffinity(0))
    siblings = text(root / f"sys/devices/system/cpu/cpu{usable[0]}/topology/thread_siblings_list")
    other = {int(word) for word in siblings.replace("-", ",").split(",") if word.isdecimal()} & set(usable)
    return [usable[0], *sorted(other - {usable[0]})[:1]] if len(other) > 1 else usable[:2]


def _alone(work: Callable[[bytes], object], data: bytes, cores: list[int], until: float, root: Path) -> float:
    """Return the speed of the first core if the second was idle; else 0."""
    before = _ticks(root, cores[1])
    speeds = _speeds(work, data, cores[:1], until)
    busy, idle = (after - then for then, after in zip(before, _ticks(root, cores[1]), strict=True))
    return speeds[0] if speeds and busy == 0 and idle > 0 else 0.0


def _ticks(root: Path, core: int) -> tuple[int, int]:
    """Return the ticks in which a core was busy and idle, from /proc/stat."""
    line = next(
        (line for line in text(root / "proc/stat").splitlines() if line.startswith(f"cpu{core} ")), ""
    )
    user, nice, system, idle, waiting, *_ = [*map(int, line.split()[1:]), 0, 0, 0, 0, 0]
    return user + nice + system, idle + waiting


def _speeds(work: Callable[[bytes], object], data: bytes, cores: list[int], until: float) -> list[float]:
    """Return the work per CPU time of a thread on each core, at the same time; empty if one does not end in time."""
    found: list[float] = []
    together = threading.Barrier(len(cores))

    def run(core: int) -> None:
        try:
            os.sched_setaffinity(0, {core})  # of this thread
            work(data)
            together.wait(MAX_SECONDS)
        except (OSError, threading.BrokenBarrierError):
            return
        used, count = time.thread_time_ns(), 0
        while time.thread_time_ns() - used < WORK_NS:
            work(data)
            count += 1
        found.append(count / (time.thread_time_ns() - used))

    threads = [threading.Thread(target=run, args=(core,), daemon=True) for core in cores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return found if len(found) == len(cores) else []

"""The host's series and facts, from real and from made-up /proc files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from perfwrap.monitors.host import host_load

STAT = """\
cpu  {user} 0 {system} {idle} {waiting} 0 0 {stolen} 0 0
cpu0 {user} 0 {system} {idle} {waiting} 0 0 {stolen} 0 0
intr 12345 0 0 1
ctxt 999
procs_running 7
procs_blocked 1
"""


def stat(user: int, system: int, idle: int, waiting: int, stolen: int) -> bytes:
    return STAT.format(user=user, system=system, idle=idle, waiting=waiting, stolen=stolen).encode()


def test_processor_times_are_busy_waiting_and_all() -> None:
    times, runnable = host_load.parse_processor_times(stat(10, 5, 70, 8, 7))
    assert times == {b"cpu": (15, 8, 7, 100), b"cpu0": (15, 8, 7, 100)}
    assert runnable == 7
    assert host_load.parse_blocked(stat(10, 5, 70, 8, 7)) == 1


def test_counters_that_step_back_are_not_negative_work(book: Any) -> None:
    monitor = host_load.HostMonitor(book.writer)
    monitor._previous = monitor._previous_full = host_load.parse_processor_times(stat(10, 5, 70, 8, 7))[0]
    monitor._taken = [
        (1, stat(60, 5, 100, 8, 27)),
        (2, stat(60, 5, 200, 6, 27)),
        (3, stat(60, 5, 200, 6, 27)),
    ]
    monitor.full(time.monotonic_ns())
    monitor.close()
    content = book.read()
    assert content.values("cpu/0", "busy_share") == [0.5, 0.0, 0.0]
    assert content.values("host", "iowait_cores") == [0.0, 0.0, 0.0]
    assert content.values("host", "runnable_tasks") == [7.0, 7.0, 7.0]
    assert content.values("host", "stolen_cores") == [0.2, 0.0, 0.0]
    assert content.values("host", "blocked_tasks") == [1.0]


def test_a_busy_core_is_seen(book: Any) -> None:
    monitor = host_load.watch(book.writer)
    begin = time.process_time()
    while time.process_time() - begin < 0.3:
        pass
    monitor.quick(time.monotonic_ns())
    monitor.full(time.monotonic_ns())
    monitor.close()
    content = book.read()
    (busy,) = content.values("host", "cpu_cores_busy")
    cores = [content.values(f"cpu/{core}", "busy_share")[0] for core in sorted(os.sched_getaffinity(0))]
    assert 0.2 < busy <= os.cpu_count()
    assert max(cores) > 0.2
    assert all(0 <= share <= 1 for share in cores)
    assert content.values("host", "runnable_tasks")[0] >= 1


def test_without_psutil_the_cores_are_still_watched(tmp_path: Path, read_journal: Any) -> None:
    code = """
import sys, time
sys.modules["psutil"] = None
from pathlib import Path
from types import SimpleNamespace
from perfwrap.monitors.host import host_load
from perfwrap.monitors.monitor_journal import JournalWriter
journal = JournalWriter(Path(sys.argv[1]), "node")
monitor = host_load.watch(journal)
monitor.quick(time.monotonic_ns())
monitor.full(time.monotonic_ns())
journal.close()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    content = read_journal(next(tmp_path.glob("*.pwj")))
    assert len(content.values("host", "cpu_cores_busy")) == 1
    assert content.values("host", "memory_available_bytes") == []
    assert content.notes("memory, swap and disks") == ["psutil is not installed in perfwrap's environment"]

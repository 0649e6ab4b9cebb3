"""The host's series and facts, from real and from made-up /proc files."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from perfwrap.monitors import host

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
    times, runnable = host.parse_processor_times(stat(10, 5, 70, 8, 7))
    assert times == {b"cpu": (15, 8, 100), b"cpu0": (15, 8, 100)}
    assert runnable == 7


def test_counters_that_step_back_are_not_negative_work(book: Any) -> None:
    monitor = host.HostMonitor(book.writer)
    monitor._previous = monitor._previous_full = host.parse_processor_times(stat(10, 5, 70, 8, 7))[0]
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


def test_a_busy_core_is_seen(book: Any) -> None:
    monitor = host.watch(book.writer)
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


def test_memory_swap_and_disks_come_from_psutil_and_rates_from_the_second_look_on(book: Any) -> None:
    psutil = pytest.importorskip("psutil")
    monitor = host.watch(book.writer)
    for _ in range(2):
        monitor.full(time.monotonic_ns())
    monitor.close()
    content = book.read()
    available = content.values("host", "memory_available_bytes")
    assert len(available) == 2
    assert 0 < available[0] <= psutil.virtual_memory().total
    assert len(content.values("host", "swap_used_bytes")) == 2
    assert len(content.values("host", "swap_in_bytes_per_s")) == 1
    if host.whole_disks(psutil) is not None:
        assert len(content.values("host", "disk_read_bytes_per_s")) == 1
        assert len(content.values("host", "disk_write_bytes_per_s")) == 1


def test_partitions_and_mapped_volumes_are_not_counted_again(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")

    class Counters:
        Error = psutil.Error

        @staticmethod
        def disk_io_counters(perdisk: bool, nowrap: bool) -> dict[str, Any]:
            names = ("sda", "sda1", "dm-0", "loop0")
            return {
                name: SimpleNamespace(read_bytes=10**at, write_bytes=2 * 10**at)
                for at, name in enumerate(names)
            }

    (tmp_path / "sda" / "device").mkdir(parents=True)
    (tmp_path / "sda1" / "partition").mkdir(parents=True)
    (tmp_path / "dm-0").mkdir()
    read = host.whole_disks(Counters, tmp_path)
    assert read is not None
    assert read() == (1, 2)


def test_without_psutil_the_cores_are_still_watched(tmp_path: Path, read_journal: Any) -> None:
    code = """
import sys, time
sys.modules["psutil"] = None
from pathlib import Path
from types import SimpleNamespace
from perfwrap.monitors import host
from perfwrap.monitors.journal import JournalWriter
journal = JournalWriter(Path(sys.argv[1]), "node")
monitor = host.watch(journal)
monitor.quick(time.monotonic_ns())
monitor.full(time.monotonic_ns())
journal.close()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    content = read_journal(next(tmp_path.glob("*.pwj")))
    assert len(content.values("host", "cpu_cores_busy")) == 1
    assert content.values("host", "memory_available_bytes") == []
    assert content.notes("memory, swap and disks") == ["psutil is not installed beside perfwrap"]


def test_facts_are_what_the_machine_says() -> None:
    facts = host.facts()
    assert int(facts["cores_online"]) == os.cpu_count()
    assert float(facts["cores_usable"]) <= len(os.sched_getaffinity(0))
    assert int(facts["memory_total_bytes"]) > 1 << 20
    assert facts["kernel"] == os.uname().release
    status = os.statvfs("/dev/shm")
    assert int(facts["shm_total_bytes"]) == status.f_blocks * status.f_frsize


def test_a_quota_below_the_affinity_decides_how_many_cores_are_usable(tmp_path: Path) -> None:
    for path, text in {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/memory.max": "1073741824\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    facts = host.facts(tmp_path)
    assert (facts["cpu_quota_cores"], facts["cores_usable"]) == ("0.5", "0.5")
    assert facts["memory_limit_bytes"] == "1073741824"
    assert "cpu_model" not in facts
    assert "shm_total_bytes" not in facts

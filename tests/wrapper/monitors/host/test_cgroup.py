"""Quotas, throttling, memory and pressure, in made-up trees and, where that is allowed, in a real group."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors.host import cgroup

SECOND = 1_000_000_000


def test_a_machine_without_control_groups_is_reported_once(made_up: Any, book: Any) -> None:
    assert cgroup.watch(book.writer, made_up.root) is None
    assert len(book.read().notes("cgroup")) == 1


def test_the_withheld_share_is_of_the_time_that_was_wanted(made_up: Any, book: Any) -> None:
    top = made_up.version_2()
    statistics = "usage_usec {}\nuser_usec 1\nnr_periods 10\nnr_throttled 5\nthrottled_usec {}\n"
    made_up.write(top / "work/job/cpu.stat", statistics.format(1_000_000, 0))
    made_up.write(top / "work/cpu.stat", "usage_usec 7\nuser_usec 1\n")
    monitor = cgroup.watch(book.writer, made_up.root)
    assert monitor is not None
    monitor.full(SECOND)
    made_up.write(top / "work/job/cpu.stat", statistics.format(1_200_000, 800_000))
    monitor.full(2 * SECOND)
    made_up.write(top / "work/job/cpu.stat", statistics.format(1_700_000, 800_000))
    monitor.full(3 * SECOND)
    assert book.read().values("cgroup", "throttled_share") == [0.0, 0.8, 0.0]
    monitor.close()


def test_version_1_compares_with_the_use_that_cpuacct_counts(made_up: Any, book: Any) -> None:
    folders = made_up.version_1(own="/")
    made_up.write(folders["cpu"] / "cpu.stat", "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n")
    made_up.write(folders["cpu"] / "cpuacct.usage", "1000\n")
    monitor = cgroup.watch(book.writer, made_up.root)
    assert monitor is not None
    made_up.write(folders["cpu"] / "cpu.stat", "nr_periods 9\nnr_throttled 8\nthrottled_time 3000\n")
    made_up.write(folders["cpu"] / "cpuacct.usage", "2000\n")
    monitor.full(SECOND)
    assert book.read().values("cgroup", "throttled_share") == [0.75]
    monitor.close()


def memory_of_version_2(made_up: Any, used: int, kills: int) -> None:
    folder = "sys/fs/cgroup/work/job"
    made_up.write(f"{folder}/memory.current", f"{used}\n")
    made_up.write(f"{folder}/memory.stat", "anon 5\nfile 6\ninactive_file 4096\n")
    made_up.write(f"{folder}/memory.events", f"low 0\nmax 5\noom {kills}\noom_kill {kills}\n")


def test_memory_is_that_of_the_group_with_the_tightest_limit_and_a_kill_is_a_mark(
    made_up: Any, book: Any
) -> None:
    top = made_up.version_2()
    made_up.write(top / "work/memory.max", "9000\n")
    made_up.write(top / "work/memory.current", "8000\n")
    made_up.write(top / "work/memory.stat", "inactive_file 4096\n")
    memory_of_version_2(made_up, used=7000, kills=0)
    monitor = cgroup.watch(book.writer, made_up.root)
    assert monitor is not None
    monitor.full(SECOND)
    memory_of_version_2(made_up, used=7000, kills=2)
    monitor.full(2 * SECOND)
    monitor.full(3 * SECOND)
    monitor.close()
    content = book.read()
    assert content.values("cgroup", "memory_used_bytes") == [8000.0] * 3
    assert content.values("cgroup", "memory_file_bytes") == [4096.0], "the dear file is not read each time"
    assert content.marks == [("oom_kill", "2 killed; 8000 bytes used, limit 9000")]
    assert content.values("cgroup", "throttled_share") == []
    assert len(content.notes("cgroup quota")) == 1


def test_memory_of_version_1_counts_the_groups_below(made_up: Any, book: Any) -> None:
    folder = made_up.version_1(own="/")["memory"]
    made_up.write(folder / "memory.usage_in_bytes", "123\n")
    made_up.write(folder / "memory.stat", "inactive_file 1\ntotal_inactive_file 99\n")
    monitor = cgroup.watch(book.writer, made_up.root)
    assert monitor is not None
    monitor.full(SECOND)
    monitor.close()
    assert book.read().values("cgroup", "memory_used_bytes") == [123.0]
    assert book.read().values("cgroup", "memory_file_bytes") == [99.0]


def test_the_groups_pressure_is_the_growth_of_its_totals(made_up: Any, book: Any) -> None:
    top = made_up.version_2()
    memory_of_version_2(made_up, used=1, kills=0)
    line = "{} avg10=99.00 avg60=99.00 avg300=99.00 total={}\n"
    for at, (some, full) in enumerate([(1_000, 500), (501_000, 250_500), (501_000, 250_500)], start=1):
        made_up.write(top / "work/job/io.pressure", line.format("some", some) + line.format("full", full))
        if at == 1:
            monitor = cgroup.watch(book.writer, made_up.root)
            assert monitor is not None
        monitor.full(at * SECOND)
    monitor.close()
    content = book.read()
    assert content.values("cgroup", "io_pressure_share") == [0.5, 0.0]
    assert content.values("cgroup", "io_stall_share") == [0.25, 0.0]
    assert content.values("cgroup", "cpu_pressure_share") == []


REAL = """
import os, sys, time
for folder in sys.argv[1:]:
    with open(folder + "/cgroup.procs", "w") as file:
        file.write("0")
from pathlib import Path
from perfwrap import control_groups
from perfwrap.monitors.host import cgroup
from perfwrap.monitors.monitor_journal import JournalWriter
class Journal:
    def series(self, entity, metric): return metric
    def not_watched(self, *words): pass
    def samples(self, time_ns, values): print(dict(values)["throttled_share"])
print(control_groups.cpu_quota(control_groups.groups("cpu")))
monitor = cgroup.watch(Journal())
begin = time.process_time()
while time.process_time() - begin < 0.4:
    pass
monitor.full(time.monotonic_ns())
"""


def real_groups() -> list[Path]:
    """Return new groups with a quota of a fifth of a core, or skip."""
    name = f"perfwrap-test-{os.getpid()}"
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    folders = [Path("/sys/fs/cgroup") / part / name for part in ([""] if unified else ["cpu", "cpuacct"])]
    try:
        for folder in folders:
            folder.mkdir()
        if unified:
            (folders[0] / "cpu.max").write_text("20000 100000")
        else:
            (folders[0] / "cpu.cfs_quota_us").write_text("20000")
            (folders[0] / "cpu.cfs_period_us").write_text("100000")
    except OSError as error:
        remove(folders)
        pytest.skip(f"control groups cannot be made here: {error}")
    return folders


def remove(folders: list[Path]) -> None:
    for folder in folders:
        if folder.is_dir():
            folder.rmdir()


def test_a_really_throttled_process_is_measured() -> None:
    folders = real_groups()
    try:
        command = [sys.executable, "-c", REAL, *map(str, folders)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=240)
    finally:
        remove(folders)
    assert answer.returncode == 0, answer.stderr
    quota, share = map(float, answer.stdout.split())
    assert quota == 0.2
    assert 0.3 < share < 1, "a loop that may use a fifth of a core is stopped most of the time"

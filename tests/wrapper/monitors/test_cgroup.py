"""Quotas and throttling, in made-up trees of both versions and, where that is allowed, in a real group."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from perfwrap.monitors import cgroup

SECOND = 1_000_000_000


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def version_2(root: Path, own: str = "/work/job", mounted: str = "/") -> Path:
    """Make a /proc and /sys of version 2; return the folder that the mount shows."""
    write(root / "proc/self/cgroup", f"0::{own}\n")
    mount = f"29 23 0:26 {mounted} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
    write(root / "proc/self/mountinfo", "23 1 0:21 / /proc rw - proc proc rw\n" + mount)
    top = root / "sys/fs/cgroup"
    top.mkdir(parents=True)
    return top


def version_1(root: Path, own: str = "/docker/abc", mounted: str = "/") -> dict[str, Path]:
    """Make a /proc and /sys of version 1, with controllers mounted together as systemd does it."""
    write(root / "proc/self/cgroup", f"5:memory:{own}\n4:cpu,cpuacct:{own}\n1:name=systemd:{own}\n0::/\n")
    places = {"cpu,cpuacct": "cpu\\040and\\040account", "memory": "memory"}
    lines = [
        f"3{at} 23 0:3{at} {mounted} /sys/fs/cgroup/{place} rw shared:9 - cgroup cgroup rw,{controllers}"
        for at, (controllers, place) in enumerate(places.items())
    ]
    write(root / "proc/self/mountinfo", "\n".join([*lines, ""]))
    folders = {"cpu": root / "sys/fs/cgroup/cpu and account", "memory": root / "sys/fs/cgroup/memory"}
    for folder in folders.values():
        folder.mkdir(parents=True)
    return folders


def test_the_tightest_quota_of_all_groups_above_counts_in_version_2(tmp_path: Path) -> None:
    top = version_2(tmp_path)
    write(top / "work/job/cpu.max", "max 100000\n")
    write(top / "work/cpu.max", "250000 100000\n")
    write(top / "work/memory.max", "8589934592\n")
    write(top / "work/job/memory.max", "max\n")
    folders = cgroup.groups("cpu", tmp_path)
    assert folders == [top / "work/job", top / "work", top]
    assert cgroup.cpu_quota(folders) == 2.5
    assert cgroup.memory_limit(cgroup.groups("memory", tmp_path)) == 8 << 30


def test_version_1_is_found_by_its_controllers_in_a_container(tmp_path: Path) -> None:
    # In a container the path tells of the host's tree, but the mount shows the container's own part only.
    folders = version_1(tmp_path, own="/docker/abc", mounted="/docker/abc")
    write(folders["cpu"] / "cpu.cfs_quota_us", "150000\n")
    write(folders["cpu"] / "cpu.cfs_period_us", "100000\n")
    write(folders["memory"] / "memory.limit_in_bytes", f"{1 << 30}\n")
    assert cgroup.groups("cpu", tmp_path) == [folders["cpu"]]
    assert cgroup.cpu_quota(cgroup.groups("cpu", tmp_path)) == 1.5
    assert cgroup.memory_limit(cgroup.groups("memory", tmp_path)) == 1 << 30


@pytest.mark.parametrize("own", ["/../../elsewhere", "/docker/gone"])
def test_a_path_that_the_mount_does_not_show_stands_for_the_mount(tmp_path: Path, own: str) -> None:
    top = version_2(tmp_path, own=own)
    write(top / "cpu.max", "50000 100000\n")
    assert cgroup.cpu_quota(cgroup.groups("cpu", tmp_path)) == 0.5


def test_numbers_that_mean_no_limit_are_none(tmp_path: Path) -> None:
    folders = version_1(tmp_path, own="/")
    write(folders["cpu"] / "cpu.cfs_quota_us", "-1\n")
    write(folders["cpu"] / "cpu.cfs_period_us", "100000\n")
    write(folders["memory"] / "memory.limit_in_bytes", "9223372036854771712\n")
    assert cgroup.cpu_quota(cgroup.groups("cpu", tmp_path)) is None
    assert cgroup.memory_limit(cgroup.groups("memory", tmp_path)) is None


def test_a_machine_without_control_groups_is_told_of_once(tmp_path: Path, book: Any) -> None:
    assert cgroup.groups("cpu", tmp_path) == []
    assert cgroup.watch(book.writer, tmp_path) is None
    assert len(book.read().notes("cgroup")) == 1


def test_the_withheld_share_is_of_the_time_that_was_wanted(tmp_path: Path, book: Any) -> None:
    top = version_2(tmp_path)
    statistics = "usage_usec {}\nuser_usec 1\nnr_periods 10\nnr_throttled 5\nthrottled_usec {}\n"
    write(top / "work/job/cpu.stat", statistics.format(1_000_000, 0))
    write(top / "work/cpu.stat", "usage_usec 7\nuser_usec 1\n")
    monitor = cgroup.watch(book.writer, tmp_path)
    assert monitor is not None
    monitor.full(SECOND)
    write(top / "work/job/cpu.stat", statistics.format(1_200_000, 800_000))
    monitor.full(2 * SECOND)
    write(top / "work/job/cpu.stat", statistics.format(1_700_000, 800_000))
    monitor.full(3 * SECOND)
    assert book.read().values("cgroup", "throttled_share") == [0.0, 0.8, 0.0]
    monitor.close()


def test_version_1_compares_with_the_use_that_cpuacct_counts(tmp_path: Path, book: Any) -> None:
    folders = version_1(tmp_path, own="/")
    write(folders["cpu"] / "cpu.stat", "nr_periods 1\nnr_throttled 0\nthrottled_time 0\n")
    write(folders["cpu"] / "cpuacct.usage", "1000\n")
    monitor = cgroup.watch(book.writer, tmp_path)
    assert monitor is not None
    write(folders["cpu"] / "cpu.stat", "nr_periods 9\nnr_throttled 8\nthrottled_time 3000\n")
    write(folders["cpu"] / "cpuacct.usage", "2000\n")
    monitor.full(SECOND)
    assert book.read().values("cgroup", "throttled_share") == [0.75]
    monitor.close()


REAL = """
import os, sys, time
for folder in sys.argv[1:]:
    with open(folder + "/cgroup.procs", "w") as file:
        file.write("0")
from pathlib import Path
from perfwrap.monitors import cgroup
from perfwrap.monitors.journal import JournalWriter
class Journal:
    def series(self, *names): return 1
    def samples(self, time_ns, values): print(values[0][1])
print(cgroup.cpu_quota(cgroup.groups("cpu")))
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
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60)
    finally:
        remove(folders)
    assert answer.returncode == 0, answer.stderr
    quota, share = map(float, answer.stdout.split())
    assert quota == 0.2
    assert 0.3 < share < 1, "a loop that may use a fifth of a core is stopped most of the time"

"""Limits and kills, from made-up trees of both versions of control groups."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap import control_groups as groups


def test_the_tightest_limit_of_all_groups_above_counts_in_version_2(made_up: Any) -> None:
    top = made_up.version_2()
    made_up.write(top / "work/job/cpu.max", "max 100000\n")
    made_up.write(top / "work/cpu.max", "250000 100000\n")
    made_up.write(top / "work/memory.max", "8589934592\n")
    made_up.write(top / "work/job/memory.max", "max\n")
    folders = groups.groups("cpu", made_up.root)
    assert folders == [top / "work/job", top / "work", top]
    assert groups.cpu_quota(folders) == 2.5
    assert groups.memory_limit(groups.groups("memory", made_up.root)) == 8 << 30


def test_version_1_is_found_by_its_controllers_in_a_container(made_up: Any) -> None:
    # In a container the path is that of the host's tree, but the mount shows only the container's own part.
    folders = made_up.version_1(own="/docker/abc", mounted="/docker/abc")
    made_up.write(folders["cpu"] / "cpu.cfs_quota_us", "150000\n")
    made_up.write(folders["cpu"] / "cpu.cfs_period_us", "100000\n")
    made_up.write(folders["memory"] / "memory.limit_in_bytes", f"{1 << 30}\n")
    assert groups.groups("cpu", made_up.root) == [folders["cpu"]]
    assert groups.cpu_quota(groups.groups("cpu", made_up.root)) == 1.5
    assert groups.memory_limit(groups.groups("memory", made_up.root)) == 1 << 30


@pytest.mark.parametrize("own", ["/../../elsewhere", "/docker/gone"])
def test_a_path_that_the_mount_does_not_show_represents_the_mount(made_up: Any, own: str) -> None:
    top = made_up.version_2(own=own)
    made_up.write(top / "cpu.max", "50000 100000\n")
    assert groups.cpu_quota(groups.groups("cpu", made_up.root)) == 0.5


def test_numbers_that_mean_no_limit_are_none(made_up: Any) -> None:
    folders = made_up.version_1(own="/")
    made_up.write(folders["cpu"] / "cpu.cfs_quota_us", "-1\n")
    made_up.write(folders["cpu"] / "cpu.cfs_period_us", "100000\n")
    made_up.write(folders["memory"] / "memory.limit_in_bytes", "9223372036854771712\n")
    assert groups.cpu_quota(groups.groups("cpu", made_up.root)) is None
    assert groups.memory_limit(groups.groups("memory", made_up.root)) is None


def test_a_machine_without_control_groups_limits_and_counts_nothing(made_up: Any) -> None:
    found = groups.groups("memory", made_up.root)
    assert found == []
    assert groups.memory_kills(found) is None
    assert groups.memory_shortages(found) == 0


def test_kills_are_those_of_the_own_group_and_shortages_those_of_all_above_in_version_2(made_up: Any) -> None:
    top = made_up.version_2()
    made_up.write(top / "work/job/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 2\n")
    made_up.write(top / "work/memory.events", "low 0\nhigh 0\nmax 90\noom 3\noom_kill 7\n")
    found = groups.groups("memory", made_up.root)
    assert groups.memory_kills(found) == 2
    assert groups.memory_shortages(found) == 3


def test_version_1_counts_kills_and_failed_charges(made_up: Any) -> None:
    folder = made_up.version_1(own="/")["memory"]
    made_up.write(folder / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
    made_up.write(folder / "memory.failcnt", "12\n")
    found = groups.groups("memory", made_up.root)
    assert groups.memory_kills(found) == 4
    assert groups.memory_shortages(found) == 12


def test_a_kernel_that_does_not_count_kills_is_not_a_zero(made_up: Any) -> None:
    folder = made_up.version_1(own="/")["memory"]
    made_up.write(folder / "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n")
    assert groups.memory_kills(groups.groups("memory", made_up.root)) is None

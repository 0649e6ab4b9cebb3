from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from perfwrap.launch import host


def test_the_facts_can_be_written_down_and_fit_this_machine() -> None:
    facts = json.loads(json.dumps(host.facts()))
    assert facts["cores_usable"] == len(os.sched_getaffinity(0)) == len(facts["affinity"])
    assert facts["memory_total_bytes"] > 0
    assert isinstance(facts["gpus"], list)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands for the machine's root."""
    monkeypatch.setattr(host, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(host, "MEMBERSHIP", tmp_path / "membership")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_narrowest_limit_of_all_surrounding_groups_counts(machine: Path) -> None:
    write(machine / "membership", "0::/jobs/one\n")
    write(machine / "cgroup/cpu.max", "max 100000\n")
    write(machine / "cgroup/jobs/cpu.max", "150000 100000\n")
    write(machine / "cgroup/jobs/one/cpu.max", "400000 100000\n")
    write(machine / "cgroup/jobs/memory.max", "max\n")
    write(machine / "cgroup/jobs/one/memory.max", "1073741824\n")
    facts = host.facts()
    assert facts["cpu_quota_cores"] == 1.5
    assert facts["memory_limit_bytes"] == 1 << 30


def test_limits_of_the_first_version_are_read(machine: Path) -> None:
    write(machine / "membership", "4:memory:/job\n3:cpu,cpuacct:/job\n0::/\n")
    write(machine / "cgroup/cpu/job/cpu.cfs_quota_us", "50000\n")
    write(machine / "cgroup/cpu/job/cpu.cfs_period_us", "100000\n")
    write(machine / "cgroup/memory/job/memory.limit_in_bytes", "2147483648\n")
    write(machine / "cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    facts = host.facts()
    assert facts["cpu_quota_cores"] == 0.5
    assert facts["memory_limit_bytes"] == 2 << 30


def test_no_limit_is_not_a_number(machine: Path) -> None:
    write(machine / "membership", "3:cpu:/\n")
    write(machine / "cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    write(machine / "cgroup/cpu/cpu.cfs_period_us", "100000\n")
    facts = host.facts()
    assert facts["cpu_quota_cores"] is None
    assert facts["memory_limit_bytes"] is None

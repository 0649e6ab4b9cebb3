"""What a checkup says of the machine it runs on."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

import pytest
from perfwrap.checkup import machine_checks
from perfwrap.monitors.pyspy import pyspy_tool


def test_the_monitors_are_really_started() -> None:
    host, quota, gpu = machine_checks.examine_monitors()
    assert host.works == "yes"
    assert "cores usable" in host.detail
    assert quota.what == "control group"
    assert gpu.detail


def test_a_folder_that_can_be_written_is_left_as_it_was(tmp_path: Path) -> None:
    line = machine_checks.examine_run_folder(tmp_path)
    assert line.works == "yes"
    assert str(tmp_path / "perfwrap-runs") in line.detail
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc", "/nowhere/at/all"])
def test_a_folder_that_cannot_be_written_is_named(folder: str) -> None:
    line = machine_checks.examine_run_folder(Path(folder))
    assert line.works == "no"
    assert line.detail.startswith(f"cannot write to {folder}")
    assert "--out" in line.detail


def test_a_broken_polars_only_stops_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "polars.py").write_text("import os\nos.kill(os.getpid(), 4)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    line = machine_checks.examine_reading()
    assert line.works == "no"
    assert "recorded here and read on another machine" in line.detail


def make_tool(folder: Path, name: str, version: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\necho 'The tool version {version} of today'\n")
    (folder / name).chmod(0o755)


def test_tools_are_found_on_the_path_with_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tool(tmp_path, "nsys", "2024.6.1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    lines = {line.what: line for line in machine_checks.examine_tools()}
    assert lines["nsys"].works == "yes"
    assert lines["nsys"].detail == f"{tmp_path / 'nsys'} (2024.6.1)"
    assert set(lines) == {"nsys", "ncu", "py-spy", "nvtx"}


def test_py_spy_needs_the_systems_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tool(tmp_path, "py-spy", "0.4")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    answers = {"/proc/sys/kernel/yama/ptrace_scope": "1", "/proc/self/status": "CapEff:\t0000000000000000"}
    monkeypatch.setattr(machine_checks, "_text", answers.__getitem__)
    assert machine_checks._py_spy().works == "partly"
    assert "`perfwrap attach` is forbidden by kernel.yama.ptrace_scope=1" in machine_checks._py_spy().detail
    answers["/proc/sys/kernel/yama/ptrace_scope"] = "2"
    assert (
        machine_checks._py_spy().detail == f"{tmp_path / 'py-spy'}; forbidden by kernel.yama.ptrace_scope=2"
    )
    answers["/proc/self/status"] = "CapEff:\t000001ffffffffff"
    assert machine_checks._py_spy().works == "yes"
    answers["/proc/self/status"] = "CapEff:\t0000000000000000"
    answers["/proc/sys/kernel/yama/ptrace_scope"] = "0"
    assert machine_checks._py_spy().works == "yes"


def test_a_missing_dependency_says_how_to_get_it_or_that_there_is_none_for_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert "/nowhere/python -m pip install py-spy" in machine_checks._py_spy().detail
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "PyPI has no py-spy for riscv64; without it" in machine_checks._py_spy().detail


def test_the_wheel_requires_both_packages_exactly_on_the_machines_that_have_wheels(repository: Path) -> None:
    lines = (repository / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    for package, machines in (("py-spy", pyspy_tool.MACHINES), ("nvtx", machine_checks.NVTX_MACHINES)):
        (line,) = (line for line in lines if line.startswith(f'  "{package}>'))
        assert tuple(re.findall(r"platform_machine == '(\w+)'", line)) == machines

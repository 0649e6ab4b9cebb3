"""Whether py-spy is installed and permitted is reported before anything runs, with a hint."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from perfwrap.commands.options import stacks
from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import Options
from perfwrap.monitors.pyspy import pyspy_tool


def put(folder: Path, script: str) -> Path:
    """Put a stand-in for py-spy into a folder."""
    tool = folder / "py-spy"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    return tool


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; perfwrap's own environment has no programs."""
    empty = tmp_path / "environment"
    empty.mkdir()
    monkeypatch.setattr(sys, "executable", str(empty / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_without_py_spy_the_user_learns_how_to_install_it(elsewhere: Path) -> None:
    with pytest.raises(PerfwrapError, match="not installed") as caught:
        stacks.with_py_spy(Options(), 20.0, False, print)
    assert "pip install py-spy" in str(caught.value.hint)


def test_py_spy_without_monitors_is_refused(elsewhere: Path) -> None:
    with pytest.raises(PerfwrapError, match="--no-monitors"):
        stacks.with_py_spy(Options(monitors=False), 20.0, False, print)


def test_that_of_perfwraps_own_environment_comes_first(elsewhere: Path) -> None:
    tool = put(elsewhere, "exit 0")
    assert pyspy_tool.find() == str(tool)
    own = put(elsewhere / "environment", "exit 0")
    assert pyspy_tool.find() == str(own)


def test_a_refusal_turns_the_inner_sampler_on_and_says_why(elsewhere: Path) -> None:
    put(elsewhere, "echo 'Permission Denied: Try running again with elevated permissions' >&2; exit 1")
    said: list[str] = []
    options = stacks.with_py_spy(Options(), 25.0, False, said.append)
    assert (options.py_spy, options.sample_hz) == ("", 25.0)
    assert "sampled inside the program instead" in said[0]
    assert "To permit it:" in said[0]


def test_another_difficulty_is_no_refusal(elsewhere: Path) -> None:
    tool = put(elsewhere, "echo 'Error: Failed to find python version from target process' >&2; exit 1")
    options = stacks.with_py_spy(Options(), 25.0, True, print)
    assert (options.py_spy, options.py_spy_hz, options.py_spy_native) == (str(tool), 25.0, True)


def test_a_py_spy_that_does_not_run_is_said(elsewhere: Path) -> None:
    put(elsewhere, "").write_bytes(b"\x7fELF nonsense")
    said: list[str] = []
    assert stacks.with_py_spy(Options(), 25.0, False, said.append).py_spy == ""
    assert "does not run" in said[0]


@pytest.mark.parametrize(
    ("scope", "granted", "words"),
    [
        ("1", False, "only the ancestors of a process"),
        ("2", False, "only root"),
        ("3", True, "no process"),
        ("1", True, "seccomp filter"),
        ("0", False, "seccomp filter"),
    ],
)
def test_the_reason_names_what_refuses(
    monkeypatch: pytest.MonkeyPatch, scope: str, granted: bool, words: str
) -> None:
    files = {"/proc/sys/kernel/yama/ptrace_scope": scope, "/proc/self/status": "Seccomp:\t2"}
    monkeypatch.setattr(pyspy_tool, "_text", files.get)
    why, cure = pyspy_tool.refused_because(granted)
    assert words in why
    assert cure

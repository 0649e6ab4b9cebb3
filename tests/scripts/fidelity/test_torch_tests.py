"""Of a file of tests, those are found that end otherwise or say something else under perfwrap, and no others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from perfwrap import cli

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
LIST = """
[[file]]
path = "test_all.py"
leave_out = ["test_all.py::test_that_hangs"]

[[file]]
path = "test_all.py"
select = "steady"
sample = 2
"""
TESTS = """
import os, random, string, unittest
import pytest


def test_steady(): pass
def test_steady_failure(): assert False, f"the number {random.random()}, {object()}"
def test_steady_skip(): pytest.skip("not here")
def test_that_hangs(): raise SystemExit
def test_that_looks(): assert "inject" not in os.environ["PYTHONPATH"]
def test_that_says_what_it_sees(): assert False, "inject" in os.environ["PYTHONPATH"]
def test_unsteady(): assert False, "".join(random.choices(string.ascii_letters, k=30))
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(SCRIPTS / "fidelity" / "torch_tests.py"),
        f"--list={folder / 'list.toml'}",
        f"--sources={folder / 'test'}",
        f"--bare={folder / 'bare'}",
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def make_perfwrap(folder: Path) -> Path:
    """Return a command that starts this perfwrap."""
    perfwrap = folder / "perfwrap"
    place = str(Path(cli.__file__).parent.parent)
    perfwrap.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {place!r})\n"
        "from perfwrap.cli import main\nsys.exit(main())\n"
    )
    perfwrap.chmod(0o755)
    return perfwrap


@pytest.mark.torch
def test_tests_that_end_otherwise_or_say_something_else_are_named_and_what_bare_runs_differ_on_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "list.toml").write_text(LIST)
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_all.py").write_text(TESTS)
    bare = run(tmp_path, "--only-bare")
    assert bare.returncode == 0, bare.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in bare.stdout.splitlines()[4:]]
    assert rows[0][:10] == ["test_all.py", "7", "6", "2", "3", "1", "0", "0", "0", "0"]
    assert rows[1][:3] == ["test_all.py, steady", "4", "2"]

    perfwrap = make_perfwrap(tmp_path)
    ended = run(tmp_path, f"--perfwrap={perfwrap}", f"--json={tmp_path / 'found.json'}")
    assert ended.returncode == 1, ended.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert [(one["test"], one["bare"], one["wrapped"]) for one in found[0]["differences"]] == [
        ("test_all.py::test_that_looks", "passed", "failed"),
        ("test_all.py::test_that_says_what_it_sees", "failed", "failed"),
    ]
    assert found[0]["unsteady"] == ["test_all.py::test_unsteady"]
    assert not found[1]["differences"]
    assert "test_all.py::test_that_looks: passed became failed" in ended.stderr
    assert len(json.loads((tmp_path / "bare" / "test_all.json").read_text())["runs"]) == 2

    other = run(tmp_path, "--only-bare", "--shuffle=other")
    assert other.returncode == 1
    assert "another sample" in other.stderr


OF_WINDOWS = """
import torch


def test_adding(): assert torch.ones(3).add(2).sum() == 9
def test_looking(): assert torch._C._len_torch_dispatch_stack() == 0
def test_script(): torch.jit.script(torch.nn.ReLU())(torch.ones(1))
"""


@pytest.mark.torch
def test_a_window_is_open_in_each_test(tmp_path: Path) -> None:
    (tmp_path / "list.toml").write_text('[[file]]\npath = "test_all.py"\n')
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "test_all.py").write_text(OF_WINDOWS)
    ended = run(tmp_path, "--windows", f"--perfwrap={make_perfwrap(tmp_path)}")
    assert ended.returncode == 1, ended.stderr
    cells = [cell.strip() for cell in ended.stdout.splitlines()[-1].split("|")[1:-1]]
    assert cells[:4] == ["test_all.py", "3", "3", "3"]
    assert cells[-3:-1] == ["**1**", "2"]
    assert int(cells[-1]) > 3
    assert "test_all.py::test_looking: passed became failed" in ended.stderr
    assert "1 without a whole window: TorchScript code runs" in ended.stderr

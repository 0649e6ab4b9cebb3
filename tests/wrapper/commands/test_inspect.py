"""`perfwrap inspect` on real programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

PROGRAM = """import sys
import torch


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    graph = torch.rand(256, 256)
    for step in range(int(sys.argv[1])):
        batch = torch.randn(64, 64)
        normal = graph @ graph.t() @ graph
        loss = (model(batch).square().mean() + normal[0, 0]).sqrt()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.save(model.state_dict(), "last.pt")
    print("done")


main()
"""
WASTED = 12
"""The line whose result is the same in each step."""


def inspect(folder: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``perfwrap inspect --out OUT`` in a folder."""
    settings: dict[str, Any] = {"env": {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **variables}}
    command = [
        sys.executable,
        "-m",
        "perfwrap",
        "inspect",
        "--out",
        str(folder.parent / "out"),
        *map(str, words),
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, **settings)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a program."""
    pytest.importorskip("torch")
    made = tmp_path / "work"
    made.mkdir()
    (made / "train.py").write_text(PROGRAM)
    return made


def test_it_shows_each_line_and_what_is_wasted_and_ends_the_program(folder: Path) -> None:
    ended = inspect(folder, "--", sys.executable, "train.py", 10**6)
    assert ended.returncode == 0, ended.stderr
    assert "One step, line by line" in ended.stdout
    assert f"train.py:{WASTED}" in ended.stdout
    assert "what is the same in every step" in " ".join(ended.stdout.split())
    assert "ended by perfwrap after enough steps" in ended.stdout
    assert "perfwrap inspect --" not in ended.stdout
    assert (folder.parent / "out" / "inspect" / "stdout.txt").read_text() == ""
    run = folder.parent / "out" / "inspect" / "run"
    assert len(list((run / "tools").glob("operations-*.json"))) == 2
    assert (run / "diagnosis.json").is_file()
    assert [path.name for path in folder.iterdir()] == ["train.py"]  # torch.save wrote nothing


def test_a_program_that_fails_is_not_inspected_and_its_output_is_named(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\nraise SystemExit('no data')\n")
    ended = inspect(folder, "--", sys.executable, "train.py")
    assert ended.returncode == 1
    assert "the program could not be inspected" in ended.stderr
    assert "no data" in ended.stderr
    assert str(folder.parent / "out" / "inspect" / "stderr.txt") in ended.stderr


def test_a_program_without_steps_is_not_inspected(folder: Path) -> None:
    (folder / "train.py").write_text("print('hello')\n")
    ended = inspect(folder, "--", sys.executable, "train.py")
    assert ended.returncode == 1
    assert "the program could not be inspected" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_program_with_too_few_steps_says_so(folder: Path) -> None:
    ended = inspect(folder, "--", sys.executable, "train.py", 12)
    assert ended.returncode == 1
    assert "step" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("words", "variables", "message"),
    [
        ([], {}, "No command was given."),
        (["--", "no-such-command"], {}, "'no-such-command' was not found"),
        (["--", sys.executable, "train.py", "9"], {"PERFWRAP_OFF": "1"}, "PERFWRAP_OFF"),
        (["--timeout", "0", "--", sys.executable], {}, "--timeout"),
    ],
)
def test_a_mistake_runs_nothing(
    folder: Path, words: list[str], variables: dict[str, str], message: str
) -> None:
    ended = inspect(folder, *words, **variables)
    assert ended.returncode == 2
    assert message in " ".join(ended.stderr.split())
    assert ended.stdout == ""
    assert not (folder.parent / "out").exists()

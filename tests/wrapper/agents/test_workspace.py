"""An agent can start programs of the server's folder only, and read runs of it only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from perfwrap.agents.workspace import Workspace
from perfwrap.errors import PerfwrapError


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside that of the server."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "evil.py").write_text("")
    return folder


@pytest.fixture
def workspace(tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A folder with a script, a package, a program, a virtual environment, and a link that leads outside."""
    root = tmp_path / "work"
    (root / "src" / "net").mkdir(parents=True)
    (root / ".venv" / "bin").mkdir(parents=True)
    for name in ("train.py", "src/net/__main__.py", "start", ".venv/bin/python3.11"):
        (root / name).write_text("")
    (root / "link.py").symlink_to(outside / "evil.py")
    monkeypatch.chdir(root)
    return Workspace(root)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py"],
        ["python3", "-u", "-X", "dev", "train.py", "-c", "../outside/config.yaml"],
        [".venv/bin/python3.11", "train.py"],
        ["python", "-m", "net"],
        ["torchrun", "--nproc-per-node", "2", "train.py", "--module", "x"],
        ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"],
        ["./start", "--fast"],
    ],
)
def test_a_program_of_the_folder_may_be_run(workspace: Workspace, command: list[str]) -> None:
    assert workspace.demand_command(command) == command


@pytest.mark.parametrize(
    "command",
    [
        [],
        [""],
        ["python"],
        ["python", "-c", "import os", "train.py"],
        ["python", "-"],
        ["python", "../outside/evil.py"],
        ["python", "link.py"],
        ["python", "missing.py"],
        ["python", "-m", "pip", "train.py"],
        ["python", "-m"],
        ["python", "-m", "../outside/evil"],
        ["../outside/python", "train.py"],
        ["bash", "-c", "python train.py"],
        ["/bin/bash", "train.py"],
        ["rm", "-rf", "train.py"],
        ["torchrun", "--no-python", "rm", "train.py"],
        ["torchrun", "-m", "pip", "train.py"],
        ["torchrun", "--nproc-per-node", "2", "../outside/evil.py"],
        ["python", "train\0.py"],
    ],
)
def test_everything_else_is_refused(workspace: Workspace, command: list[str]) -> None:
    with pytest.raises(PerfwrapError):
        workspace.demand_command(command)


def make_run(folder: Path) -> Path:
    """Make what a finished run leaves, as far as it is read here."""
    folder.mkdir(parents=True)
    clock = {"monotonic_ns": 1, "wall_ns": 1}
    manifest = {"format": 2, "command": ["python", "train.py"], "start": clock, "versions": {"perfwrap": "0"}}
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "diagnosis.json").write_text('{"format": 2}')
    return folder


def test_runs_of_the_folder_are_read_and_no_others(workspace: Workspace, outside: Path) -> None:
    runs = workspace.root / "perfwrap-runs"
    make_run(runs / "first")
    make_run(outside / "other")
    (runs / "leads-out").symlink_to(outside / "other")
    assert workspace.run("first") == runs / "first"
    assert [path.name for path in workspace.runs()] == ["first"]
    assert workspace.document("first", "diagnosis.json") == '{"format": 2}'
    for name in (str(outside / "other"), "../outside/other", "leads-out", "missing"):
        with pytest.raises(PerfwrapError):
            workspace.run(name)


@pytest.mark.parametrize(
    "document", ["run.json", "../../train.py", "/etc/passwd", "perfwrap.patch", "stolen"]
)
def test_only_the_documents_of_a_run_are_read(workspace: Workspace, outside: Path, document: str) -> None:
    run = make_run(workspace.root / "perfwrap-runs" / "first")
    (run / "perfwrap.patch").symlink_to(outside / "evil.py")
    with pytest.raises(PerfwrapError):
        workspace.document("first", document)


def test_a_new_run_never_has_the_place_of_another(workspace: Workspace) -> None:
    places = set()
    for _ in range(3):
        path = workspace.new_run("fix", ["python", "train.py"])
        (workspace.root / path).mkdir(parents=True)
        places.add(path)
    assert len(places) == 3
    assert all("-fix-train" in path.name for path in places)

"""The workflow of docs/fix.md: it is YAML of the right form, and its scripts do what they say with real git."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from perfwrap.edits.files.patch_text import patch
from perfwrap.edits.files.source_reader import read_source


@pytest.fixture
def steps(repository: Path) -> list[dict[str, Any]]:
    """Return the steps of the workflow's one job."""
    yaml = pytest.importorskip("yaml")
    text = (repository / "docs" / "fix.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    workflow = yaml.safe_load(block)
    # YAML 1.1 reads "on" as a truth value.
    assert set(workflow) == {"name", True, "permissions", "jobs"}
    assert workflow["permissions"] == {"contents": "write", "pull-requests": "write"}
    (job,) = workflow["jobs"].values()
    for step in job["steps"]:
        assert len({"uses", "run"} & set(step)) == 1
    found: list[dict[str, Any]] = job["steps"]
    return found


def shell(script: str, folder: Path, variables: dict[str, str], *programs: tuple[str, str]) -> int:
    """Run a script as GitHub does, with programs of these names and texts; return its exit code."""
    binaries = folder.parent / "bin"
    binaries.mkdir(exist_ok=True)
    for name, text in programs:
        (binaries / name).write_text(f"#!/bin/bash\n{text}\n")
        (binaries / name).chmod(0o755)
    path = f"{binaries}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, **variables, "PATH": path},
        capture_output=True,
    ).returncode


@pytest.mark.parametrize(("status", "exit_code"), [(0, 0), (1, 0), (2, 2)])
def test_only_an_error_fails_the_job(
    steps: list[dict[str, Any]], status: int, exit_code: int, tmp_path: Path
) -> None:
    folder, output = tmp_path / "work", tmp_path / "output"
    folder.mkdir()
    script = next(step["run"] for step in steps if step.get("id") == "fix")
    variables = {"GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(tmp_path)}
    found = shell(script, folder, variables, ("perfwrap", f"exit {status}"))
    assert (found == 0) is (exit_code == 0)
    assert output.read_text() == f"status={status}\n"


def test_the_patch_becomes_a_commit_on_a_branch_of_its_own(
    steps: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder, origin = tmp_path / "work", tmp_path / "origin.git"
    program = folder / "train.py"
    folder.mkdir()
    program.write_text("a = 1\n")
    (tmp_path / "fix").mkdir()
    for command in (
        ["init", "-q", "--bare", str(origin)],
        ["init", "-q"],
        ["add", "train.py"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"],
        ["remote", "add", "origin", str(origin)],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True, capture_output=True)
    (tmp_path / "fix" / "perfwrap.patch").write_bytes(patch({read_source(program): b"a = 2\n"}))
    step = next(step for step in steps if "if" in step)
    assert step["if"] == "steps.fix.outputs.status == '0'"
    asked = tmp_path / "asked"
    assert shell(step["run"], folder, {"RUNNER_TEMP": str(tmp_path)}, ("gh", f'echo "$@" >> {asked}')) == 0
    shown = subprocess.run(
        ["git", "show", "perfwrap-fix:train.py"], cwd=origin, capture_output=True, text=True
    )
    assert shown.stdout == "a = 2\n"
    assert asked.read_text().startswith("pr create --title Faster training step --body-file")

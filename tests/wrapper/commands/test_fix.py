"""`perfwrap fix --apply`, with real git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from perfwrap.commands.fix import _apply
from perfwrap.edits.files.patch_text import patch
from perfwrap.edits.files.source_reader import read_source
from perfwrap.errors import PerfwrapError

OLD, NEW = "a = 1\nb = 2\n", "a = 1\nb = 3\n"


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, Path]:
    """A committed program, and a patch of it."""
    root = tmp_path / "work"
    root.mkdir()
    program = root / "train.py"
    program.write_text(OLD)
    path = tmp_path / "perfwrap.patch"
    path.write_bytes(patch({read_source(program): NEW.encode()}))
    git(root, "init", "-q")
    git(root, "add", "train.py")
    git(root, "commit", "-qm", "first")
    return program, path


def git(root: Path, *words: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True)


def test_a_patch_is_applied_to_committed_files(tree: tuple[Path, Path]) -> None:
    program, path = tree
    _apply(path, program.parent)
    assert program.read_text() == NEW


@pytest.mark.parametrize("committed", [False, True])
def test_a_file_that_changed_meanwhile_stays(tree: tuple[Path, Path], committed: bool) -> None:
    program, path = tree
    program.write_text("c = 1\n")
    if committed:
        git(program.parent, "commit", "-qam", "second")
    with pytest.raises(PerfwrapError, match="git apply failed" if committed else "uncommitted changes"):
        _apply(path, program.parent)
    assert program.read_text() == "c = 1\n"


def test_without_git_the_error_says_how_to_apply_it(
    tree: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, path = tree
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PerfwrapError, match="git cannot be run") as caught:
        _apply(path, program.parent)
    assert "patch -p1" in caught.value.hint
    assert program.read_text() == OLD

"""What the tools that work on the user's project make of run folders in it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from perfwrap import run_folder
from perfwrap.analysis import run_names
from perfwrap.launch import injection
from perfwrap.run_folder import RunFolder


@pytest.fixture(params=["flat", "src"])
def project(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one package with two runs in it, as the current directory."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / ("mine" if request.param == "flat" else "src/mine")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('"""Mine."""\n')
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "mine"\nversion = "1"\n')
    for _ in range(2):
        folder = run_folder.create(None, ["train"])
        folder.write_manifest({"command": ["train"], "start": {"wall_ns": 1, "monotonic_ns": 1}})
        injection.prepare(folder, {})
    return tmp_path


def python(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment)


def needs(module: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")


def test_setuptools_builds_the_project_and_takes_nothing_of_the_runs(project: Path) -> None:
    needs("setuptools")
    done = python("-c", "from setuptools import build_meta; build_meta.build_sdist('dist')")
    assert done.returncode == 0, done.stderr
    (archive,) = Path("dist").glob("*.tar.gz")
    names = subprocess.run(["tar", "tzf", archive], capture_output=True, text=True).stdout
    assert "mine/__init__.py" in names and "perfwrap" not in names


def test_setuptools_takes_no_module_of_the_runs_where_every_folder_counts(project: Path) -> None:
    needs("setuptools")
    with open("pyproject.toml", "a") as file:
        file.write('[tool.setuptools.packages.find]\nwhere = ["."]\n')
    done = python("-c", "from setuptools import build_meta; build_meta.build_sdist('dist')")
    assert done.returncode == 0, done.stderr
    (archive,) = Path("dist").glob("*.tar.gz")
    names = subprocess.run(["tar", "tzf", archive], capture_output=True, text=True).stdout
    assert "mine/__init__.py" in names and "perfwrap" not in names


def make_repository() -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", "."], check=True)


def test_git_shows_no_run(project: Path) -> None:
    make_repository()
    status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True)
    assert "pyproject.toml" in status.stdout and "perfwrap" not in status.stdout


@pytest.mark.parametrize("place", [None, "elsewhere"])
def test_mypy_and_ruff_look_into_no_run(project: Path, place: str | None) -> None:
    if place is not None:
        Path("perfwrap-runs").rename(place)  # As a folder that --out names: none of ours is around it.
        Path(place, ".gitignore").unlink()
    make_repository()
    for module in ("mypy", "ruff"):
        needs(module)
    done = python("-m", "mypy", "--cache-dir", os.devnull, ".")
    assert (done.returncode, done.stdout) == (0, "Success: no issues found in 1 source file\n"), done.stdout
    done = python("-m", "ruff", "check", "--no-cache", "--select", "ALL", ".")
    assert "perfwrap" not in done.stdout and ".inject" not in done.stdout


def test_pytest_collects_nothing_of_the_runs_not_even_docstrings(project: Path) -> None:
    words = ["--doctest-modules", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = python("-m", "pytest", *words)
    assert "no tests collected" in done.stdout and "error" not in done.stdout, done.stdout


def test_a_gitignore_that_the_user_took_away_does_not_come_back(project: Path) -> None:
    Path("perfwrap-runs", ".gitignore").unlink()
    run_folder.create(None, ["train"])
    assert not Path("perfwrap-runs", ".gitignore").exists()


def test_runs_of_an_older_perfwrap_are_found_by_name(project: Path) -> None:
    Path("perfwrap-runs").rename("perfwrap_runs")
    old, _ = sorted(Path("perfwrap_runs").glob("[!.]*"))
    assert run_names.find(old.name) == old
    newest = run_folder.create(None, ["newest"])
    newest.write_manifest({"command": ["newest"], "start": {"wall_ns": 2, "monotonic_ns": 2}})
    assert RunFolder(run_names.find("latest").absolute()) == newest

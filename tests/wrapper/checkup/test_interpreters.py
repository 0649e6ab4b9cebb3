"""Real interpreters are reached, or it is said why not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from perfwrap.checkup.interpreters import Interpreter, examine, find_interpreters
from perfwrap.launch import injection
from perfwrap.run_folder import RunFolder

Examine = Callable[..., Interpreter]


@pytest.fixture
def look(tmp_path: Path) -> Examine:
    """Examine an interpreter in an environment with some changes."""

    def run(path: str, **changes: str) -> Interpreter:
        environment = {**os.environ, **changes}
        folder = RunFolder(tmp_path / "run")
        folder.starts.mkdir(parents=True)
        found = examine(path, folder, {**environment, **injection.prepare(folder, environment)})
        assert found is not None
        return found

    return run


def make_torch(folder: Path, version: str) -> str:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text("raise SystemExit('somebody imported torch')")
    (folder / "torch" / "version.py").write_text(version)
    return str(folder)


def test_every_installed_python_is_reached(look: Examine, interpreter: str) -> None:
    found = look(interpreter)
    assert found.vector == "sitecustomize"
    assert found.reason == ""
    assert found.said["executable"]
    assert found.line().what == f"Python {found.said['version']}"


@pytest.mark.parametrize("version", ["2.7", "3.6"])
def test_a_python_that_is_too_old_is_named_as_such(look: Examine, version: str) -> None:
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(pyenv.glob(f"{version}.*/bin/python"))
    if not found:
        pytest.skip(f"no Python {version} on this machine")
    line = look(str(found[0])).line()
    assert line.works == "no"
    assert "recorder not loaded" in line.detail
    assert line.what.startswith(f"Python {version}")


def test_torch_is_found_without_importing_it(look: Examine, tmp_path: Path) -> None:
    version = "__version__ = '2.6.0+cu124'\ncuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n"
    found = look(sys.executable, PYTHONPATH=make_torch(tmp_path / "site", version))
    assert found.torch == "torch 2.6.0+cu124 (CUDA 12.4)"
    assert found.can_record
    assert found.line().works == "yes"


def test_a_python_without_torch_is_reached_but_records_nothing(look: Examine, tmp_path: Path) -> None:
    empty = tmp_path / "site"
    (empty / "torch").mkdir(parents=True)
    (empty / "torch" / "__init__.py").touch()
    found = look(sys.executable, PYTHONPATH=str(empty))
    assert not found.can_record
    assert found.line().works == "partly"
    assert "torch is not installed" in found.line().detail


def test_the_users_own_sitecustomize_is_named(look: Examine, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("")
    assert f"{own / 'sitecustomize.py'} also runs" in look(sys.executable, PYTHONPATH=str(own)).line().detail


def test_a_reason_is_given_where_perfwrap_is_switched_off(look: Examine) -> None:
    found = look(sys.executable, PERFWRAP_OFF="1")
    assert (found.vector, found.reason) == ("", "was excluded by PERFWRAP_OFF=1")
    assert found.line().works == "no"


def test_what_is_no_program_is_left_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.starts.mkdir()
    assert examine(str(tmp_path / "gone"), folder, {}) is None
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    said = examine(str(script), folder, {"PATH": os.defpath})
    assert said is None or said.vector == ""


def test_one_environment_under_several_names_is_reported_once() -> None:
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent)}
    found = find_interpreters(environment)
    assert [python.said["prefix"] for python in found] == [sys.prefix]

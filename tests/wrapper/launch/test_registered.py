from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from perfwrap import run_folder
from perfwrap.launch import proc, registered
from perfwrap.run_folder import host_name


class Patience:
    """Counts pauses, and ends a process in the course of them."""

    def __init__(self, process: Any = None, impatient: bool = False) -> None:
        self.pauses, self.process, self.impatient = 0, process, impatient

    def pause(self, seconds: float) -> bool:
        self.pauses += 1
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        return self.impatient


@pytest.fixture
def folder(tmp_path: Path) -> run_folder.RunFolder:
    return run_folder.create(tmp_path / "run", ["x"])


@pytest.fixture
def sleeper() -> Any:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def record(folder: run_folder.RunFolder, *processes: tuple[int, int]) -> None:
    lines = [f"start\t{pid}\t1\t{ticks}\t0\t3.11.1\tsitecustomize\tpython\n" for pid, ticks in processes]
    (folder.starts / f"{host_name()}.log").write_text("".join(lines) + "start\t77")


def ticks(process: Any) -> int:
    found = proc.status(process.pid)
    assert found is not None
    return found[1]


def test_a_process_that_ends_soon_is_waited_for(folder: run_folder.RunFolder, sleeper: Any) -> None:
    record(folder, (sleeper.pid, ticks(sleeper)))
    patience = Patience(sleeper)
    registered.wait(folder, patience)  # type: ignore[arg-type]
    assert patience.pauses == 1


def test_another_process_with_the_same_pid_is_not_waited_for(
    folder: run_folder.RunFolder, sleeper: Any
) -> None:
    record(folder, (sleeper.pid, ticks(sleeper) + 1))
    patience = Patience(sleeper)
    registered.wait(folder, patience)  # type: ignore[arg-type]
    assert patience.pauses == 0


def test_the_user_can_end_the_waiting(folder: run_folder.RunFolder, sleeper: Any) -> None:
    record(folder, (sleeper.pid, ticks(sleeper)))
    registered.wait(folder, Patience(impatient=True))  # type: ignore[arg-type]
    assert sleeper.poll() is None


def test_a_daemon_is_not_waited_for_forever(
    folder: run_folder.RunFolder, sleeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered, "PATIENCE_SECONDS", 0.1)
    record(folder, (sleeper.pid, ticks(sleeper)))
    registered.wait(folder, Patience())  # type: ignore[arg-type]
    assert sleeper.poll() is None


def test_nothing_recorded_is_nothing_to_wait_for(folder: run_folder.RunFolder) -> None:
    registered.wait(folder, Patience())  # type: ignore[arg-type]

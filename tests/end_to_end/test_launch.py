"""torchrun under perfwrap: the same ends, the same clean-up, and one run however deep perfwrap is nested."""

from __future__ import annotations

import importlib.util
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

PATIENCE_SECONDS = 120
WORKER = """\
import os, signal, sys, time
rank = os.environ["RANK"]
def leave(number, frame):
    open(f"left{rank}", "w").write(signal.Signals(number).name)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
signal.signal(signal.SIGINT, leave)
open(f"ready{rank}", "w").close()
while True:
    time.sleep(0.1)
"""
PREFIXES = {
    "bare": [],
    "wrapped": [sys.executable, "-m", "perfwrap", "run", "--no-report", "--out", "the_run", "--"],
}


def torchrun(*words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        "0",
        *words,
    ]


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        select.select([], [], [], 0.02)


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    """Return a folder with the worker for each way to run it."""
    for name in PREFIXES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "worker.py").write_text(WORKER)
    return {name: tmp_path / name for name in PREFIXES}


@pytest.fixture
def on_terminal() -> Iterator[Any]:
    """Start commands as leaders of sessions on terminals."""
    started: dict[int, int] = {}

    def start(command: list[str], place: Path) -> tuple[int, int]:
        pid, master = pty.fork()
        if pid == 0:
            os.chdir(place)
            os.execvp(command[0], command)
        started[pid] = master
        return pid, master

    yield start
    for pid, master in started.items():
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.close(master)


def end_of(pid: int, master: int) -> int:
    """Read what is printed until the process ends; return its exit code."""
    status: list[int] = []

    def ended() -> bool:
        if select.select([master], [], [], 0)[0]:
            try:
                os.read(master, 65536)
            except OSError:
                pass
        found, value = os.waitpid(pid, os.WNOHANG)
        status[:] = [value] if found else []
        return bool(found)

    wait_for(ended, "torchrun to end")
    return os.waitstatus_to_exitcode(status[0])


@pytest.mark.parametrize("how", ["ctrl-c", "term"])
def test_torchrun_ends_and_cleans_up_as_bare(how: str, places: dict[str, Path], on_terminal: Any) -> None:
    seen = {}
    for name, place in places.items():
        pid, master = on_terminal(PREFIXES[name] + torchrun("worker.py"), place)
        wait_for(lambda: all((place / f"ready{rank}").exists() for rank in (0, 1)), "both workers")  # noqa: B023
        if how == "ctrl-c":
            os.write(master, b"\x03")
        else:
            os.kill(pid, signal.SIGTERM)
        code = end_of(pid, master)
        wait_for(lambda: all((place / f"left{rank}").exists() for rank in (0, 1)), "the clean-up")  # noqa: B023
        seen[name] = [code, *sorted(path.name + path.read_text() for path in place.glob("left*"))]
    assert seen["wrapped"] == seen["bare"]


def test_perfwrap_inside_torchrun_inside_perfwrap_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(
        "import os; line = f\"rank {os.environ['RANK']} {os.environ['PYTHONPATH']}\\n\"\n"
        "os.write(1, line.encode())  # in one piece: the ranks share the pipe\n"
    )
    inner = [sys.executable, "-m", "perfwrap", "run", "--", sys.executable, "worker.py"]
    answer = subprocess.run(
        PREFIXES["wrapped"] + torchrun("--no-python", *inner), cwd=tmp_path, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    environment = {name: value for name, value in os.environ.items() if name == "PYTHONPATH" and value}
    path = os.pathsep.join([f"{tmp_path}/the_run/.inject", *environment.values()])
    assert sorted(answer.stdout.splitlines()) == [f"rank {rank} {path}" for rank in (0, 1)]
    assert not (tmp_path / "perfwrap-runs").exists()
    assert answer.stderr.count("perfwrap: ") == 1

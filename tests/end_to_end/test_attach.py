"""``perfwrap attach --recorder`` brings the recorder into a job that runs already, by the real ``sys.remote_exec``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import find_interpreter

PROGRAM = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep(0.002)  # SLOW
        return torch.full((8,), float(index))

net = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
print("ready", flush=True)
while not __import__("os").path.exists(sys.argv[1]):
    for batch in DataLoader(Data(), batch_size=8):
        optimizer.zero_grad()
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
print("end", flush=True)
"""
PATIENCE_SECONDS = 120


@cache
def find_python() -> str | None:
    """Return a Python of 3.14 or later that has torch."""
    python = find_interpreter("3.14")
    if python is None:
        return None
    done = subprocess.run([python, "-c", "import torch"], capture_output=True)
    return python if done.returncode == 0 else None


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A job of the Python that the test names, which trains until ``stop`` is there."""
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    process = subprocess.Popen(
        [request.param, str(script), str(tmp_path / "stop")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def attach(pid: int, *words: object) -> list[str]:
    return [sys.executable, "-m", "perfwrap", "attach", str(pid), "--recorder", *map(str, words)]


def end(job: subprocess.Popen[str], folder: Path) -> None:
    (folder / "stop").touch()
    output, complaints = job.communicate(timeout=PATIENCE_SECONDS)
    assert (job.returncode, output, complaints) == (0, "end\n", "")


NEW = pytest.mark.skipif(find_python() is None, reason="no Python 3.14 with torch is installed")


@pytest.mark.timing
@NEW
@pytest.mark.parametrize("job", [find_python()], indirect=True)
def test_a_running_job_gets_a_verdict_with_its_line_and_again(job, tmp_path: Path) -> None:
    for name in ("first", "second"):
        folder = tmp_path / name
        done = subprocess.run(
            attach(job.pid, "--seconds", 5, "--out", folder),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        )
        assert done.returncode == 0, done.stderr
        assert f"the recorder is loaded in {job.pid} until perfwrap stops" in done.stderr
        diagnosis = json.loads((folder / "diagnosis.json").read_text())
        assert diagnosis["verdict"]["id"] == "data-bound", diagnosis["verdict"]
        (finding, *_) = diagnosis["findings"]
        line = PROGRAM[: PROGRAM.index("for batch")].count("\n") + 1
        assert (finding["rule"], finding["location"]["line"]) == ("data_loader_single_process", line)
        assert diagnosis["outcomes"]["slow_start"]["state"] == "not checked"
    end(job, tmp_path)


@NEW
@pytest.mark.parametrize("job", [find_python()], indirect=True)
def test_the_job_records_no_more_when_the_watcher_is_killed(job, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    watcher = subprocess.Popen(attach(job.pid, "--out", folder), stderr=subprocess.PIPE, text=True)
    assert watcher.stderr is not None
    while "the recorder is loaded in" not in (line := watcher.stderr.readline()):
        assert line, "the watching ended"
    os.kill(watcher.pid, signal.SIGKILL)
    watcher.wait()
    (path,) = (folder / "journal").glob(f"*-{job.pid}-*.pwj")
    sizes = [0, 1]
    deadline = time.monotonic() + PATIENCE_SECONDS
    while sizes[-1] != sizes[-2]:
        assert time.monotonic() < deadline
        time.sleep(1)
        sizes.append(path.read_bytes().count(b"\0"))
    end(job, tmp_path)


@pytest.mark.parametrize("job", [sys.executable], indirect=True)
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python can be asked")
def test_an_older_python_is_left_alone_and_that_is_said(job, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    folder = tmp_path / "run"
    done = subprocess.run(
        attach(job.pid, "--seconds", 1, "--out", folder, "--no-report"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    version = ".".join(map(str, sys.version_info[:2]))
    assert (
        f"Process {job.pid} has no recorder: it is Python {version}, but this needs 3.14 or later"
        in done.stderr
    )
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["attached"]["recorder"] is False
    assert manifest["warnings"]
    end(job, tmp_path)

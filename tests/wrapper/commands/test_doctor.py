"""``perfwrap doctor`` as a user sees it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE_SECONDS = 120
TRAINING = """
import subprocess, sys, time
isolated = subprocess.Popen([sys.executable, "-I", "-c", "input(); print('isolated')"], stdin=subprocess.PIPE)
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
time.sleep(1)
isolated.communicate(b"\\n")
print("trained", file=sys.stderr)
sys.exit(4)
"""


def doctor(folder: Path, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfwrap", "doctor", *words]
    environment = {**os.environ, "TMPDIR": str(folder), "COLUMNS": "80", **changes}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )


def folded(text: str) -> str:
    return " ".join(text.split())


def has_torch() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None


def test_it_says_on_eighty_columns_what_can_be_recorded_and_leaves_nothing(tmp_path: Path) -> None:
    answer = doctor(tmp_path)
    assert answer.stderr == ""
    assert answer.returncode == (0 if has_torch() else 1)
    assert max(map(len, answer.stdout.splitlines())) <= 80
    for what in (
        "Python 3.",
        "host",
        "control group",
        "GPU",
        "run folder",
        "reports",
        "nsys",
        "ncu",
        "py-spy",
        "nvtx",
    ):
        assert f"  {what}" in answer.stdout
    assert list(tmp_path.iterdir()) == []


def test_it_works_without_polars(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "polars.py").write_text("raise ImportError('no polars today')\n")
    answer = doctor(tmp_path, PYTHONPATH=str(broken))
    assert answer.stderr == ""
    assert "no polars today" in folded(answer.stdout)
    assert "read on another machine" in folded(answer.stdout)


def test_a_command_without_python_records_nothing_and_that_is_the_exit_code(tmp_path: Path) -> None:
    answer = doctor(tmp_path, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert answer.stdout.startswith("out\n")
    assert answer.stderr == "err\n"
    assert "ended with exit code 3; it started no Python" in folded(answer.stdout)
    assert answer.returncode == 1
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    answer = doctor(tmp_path, "--", "no-such-command-anywhere")
    assert answer.returncode == 1
    assert "no-such-command-anywhere: No such file or directory" in folded(answer.stdout)


def test_a_training_is_run_and_its_processes_are_explained(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    answer = doctor(tmp_path, "--", sys.executable, str(script))
    text = folded(answer.stdout)
    assert answer.returncode == 0, answer.stdout
    assert answer.stdout.startswith("isolated\n")
    assert answer.stderr == "trained\n"
    assert "ended with exit code 4" in text
    assert "recorder loaded by sitecustomize" in text
    assert "role main" in text
    assert "optimizer" in text.partition("probes ")[2].partition(":")[0]
    assert "was started with -I" in text
    assert max(map(len, answer.stdout.splitlines())) <= 80
    assert not list(tmp_path.glob("*perfwrap*"))


def test_ctrl_c_ends_the_command_and_what_was_seen_is_still_reported(tmp_path: Path) -> None:
    # Many short sleeps: Python may notice a signal just before one of them, and act on it only after it.
    code = "import time; print('started', flush=True); exec('while True: time.sleep(0.05)')"
    process = subprocess.Popen(
        [sys.executable, "-m", "perfwrap", "doctor", "--", sys.executable, "-c", code],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time_limit = time.monotonic() + PATIENCE_SECONDS
        os.killpg(process.pid, signal.SIGINT)
        assert select.select([process.stdout], [], [], time_limit - time.monotonic())[0]
        text = folded(process.stdout.read())
    assert "ended with" in text
    assert "recorder loaded in 1 Python process" in text
    assert process.returncode == 1

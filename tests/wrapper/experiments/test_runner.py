from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest
from perfwrap.experiments.reading import Reading, read, read_timeline
from perfwrap.experiments.runner import Ended, Settings, run_once

PATIENT = 600.0
TRAIN = """
import sys
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.rand(4000, 8), batch_size=4)

def train():
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
"""


def run(
    folder: Path, text: str, *changes: str, grace_s: float = 30.0, limit_s: float = PATIENT
) -> tuple[Ended, Reading]:
    script = folder / "program.py"
    script.write_text(text)
    settings = Settings(steps=10, precision=0.0, grace_s=grace_s)
    ended = run_once(
        [sys.executable, str(script)], changes, folder / "out", settings, lambda _: None, limit_s
    )
    return ended, read(ended, changes, read_timeline(ended.run))


@pytest.mark.torch
def test_a_program_is_left_when_its_steps_are_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    ended, reading = run(tmp_path, TRAIN + "while True: train()\n", "workers=1")
    assert (ended.how, reading.status) == ("ended", "measured")
    assert reading.steps.number.size == 10
    assert (reading.steps.samples == 4).all()
    assert reading.made["workers=1"].status == "applied"
    [site] = reading.made["workers=1"].sites
    assert (Path(site.file), site.line) == (tmp_path / "program.py", 8)
    assert (site.before, site.after) == ("num_workers=0", "num_workers=1")
    assert reading.loss is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "program.py"]


@pytest.mark.torch
def test_a_program_that_clings_to_its_loop_is_ended_and_its_steps_count(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    clings = "while True:\n    try: train()\n    except BaseException: pass\n"
    ended, reading = run(tmp_path, TRAIN + clings, grace_s=2.0)
    assert (ended.how, reading.status) == ("ended", "measured")


@pytest.mark.torch
def test_a_change_that_finds_nothing_to_change_is_said_to_be_unused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    _, reading = run(tmp_path, TRAIN + "while True: train()\n", "no-debug")
    assert reading.status == "unused"


def test_the_memory_of_all_processes_is_known_where_nothing_is_timed(tmp_path: Path) -> None:
    text = (
        "import subprocess, sys, time\n"
        "held = bytearray({own} << 20)\n"
        "code = 'import time; held = bytearray({child} << 20); time.sleep(2)'\n"
        "subprocess.run([sys.executable, '-c', code])\n"
    )
    peaks = []
    for name, own, child in (("small", 1, 1), ("own", 200, 1), ("child", 1, 200)):
        script = tmp_path / f"{name}.py"
        script.write_text(text.format(own=own, child=child))
        settings = Settings(values_seed=0)
        command = [sys.executable, str(script)]
        ended = run_once(command, (), tmp_path / name, settings, lambda _: None, PATIENT)
        assert ended.peak_bytes is not None
        peaks.append(ended.peak_bytes)
    for more in peaks[1:]:
        assert 150 << 20 < more - peaks[0] < 250 << 20
    script.write_text("")
    assert run_once(command, (), tmp_path / "timed", Settings(), lambda _: None, PATIENT).peak_bytes is None


def test_a_program_that_hangs_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    hangs = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(900)']\n"
        "child = subprocess.Popen(sleep, start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(900)\n"
    )
    ended, reading = run(tmp_path, hangs, grace_s=1.0, limit_s=20.0)
    assert (ended.how, reading.status) == ("too slow", "hung")
    assert "before any steady step" in reading.reason
    pid = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("raise ValueError('no such column')", "crashed", "exit code 1: ValueError: no such column"),
        ("raise MemoryError", "out of memory", "MemoryError"),
        ("raise RuntimeError('CUDA out of memory. Tried')", "out of memory", "CUDA out of memory"),
        ("import os; os.kill(os.getpid(), 9)", "crashed", "signal 9"),
        ("print('done')", "no steps", "no training loop was seen"),
    ],
)
def test_a_program_without_steps_says_why(text: str, status: str, words: str, tmp_path: Path) -> None:
    ended, reading = run(tmp_path, text)
    assert (ended.how, reading.status) == ("ended", status)
    assert words in reading.reason
    assert not reading.steps.number.size

"""`perfwrap try` on real programs: what it measures, says and leaves alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]

PROGRAM = """import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        if get_worker_info() is not None and os.environ.get("WORKERS") == "crash":
            raise KeyError("not in a worker")
        time.sleep(0.01)
        return torch.full((16,), index / 4000.0)


def main():
    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    loader = DataLoader(Slow(), batch_size=int(sys.argv[1]))
    while True:
        for batch in loader:
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            torch.save(model.state_dict(), "last.pt")


if __name__ == "__main__":
    main()
"""


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "perfwrap", "try", *map(str, words)]


def variables(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "80", **more}


def tried(
    folder: Path, *words: object, **more: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """Run ``perfwrap try`` in a folder, its own files beside it."""
    pytest.importorskip("torch")
    out = folder.parent / f"{folder.name}-out"
    done = subprocess.run(
        command("--out", out, *words), cwd=folder, env=variables(**more), capture_output=True, text=True
    )
    document = out / "try.json"
    return done, json.loads(document.read_text()) if document.exists() else {}


def program(folder: Path, text: str = PROGRAM) -> Path:
    folder.mkdir()
    (folder / "train.py").write_text(text)
    return folder


@pytest.mark.timing
def test_the_gain_its_edit_and_a_ceiling_are_found_and_no_file_is_touched(tmp_path: Path) -> None:
    folder = program(tmp_path / "work")
    before = (folder / "train.py").stat()
    done, document = tried(
        folder,
        "--steps",
        25,
        "--repeats",
        1,
        "workers=4",
        "cached-batch",
        "none",
        "--",
        sys.executable,
        "train.py",
        4,
    )
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in document["variants"]}
    assert {name: rows[name]["judgement"] for name in ("workers=4", "cached-batch")} == {
        "workers=4": "gain",
        "cached-batch": "gain",
    }
    # Of one repeat in 40, "no change" is outside of its 95 % interval on one side: only its size is certain.
    assert 0.7 < rows["none"]["ratio"] < 1.4
    # Four workers take turns at sleeping, and a batch that is kept costs nothing.
    assert rows["workers=4"]["low"] < 0.7
    assert rows["cached-batch"]["ratio"] < rows["workers=4"]["ratio"]
    assert document["best"] == "workers=4"
    assert (
        "+    loader = DataLoader(Slow(), batch_size=int(sys.argv[1]), num_workers=4)"
        in rows["workers=4"]["edit"]
    )
    assert "+    loader = DataLoader(Slow(), batch_size=int(sys.argv[1]), num_workers=4)" in done.stdout
    reported = [line for line in done.stdout.splitlines() if not line.startswith("Report: ")]
    assert max(map(len, reported)) <= 100, "paths alone may be longer"
    assert document["baseline"]["skipped_writes"] > 0
    assert document["written"] == []
    assert [path.name for path in folder.iterdir()] == ["train.py"]
    assert (folder / "train.py").stat().st_mtime_ns == before.st_mtime_ns
    patched = subprocess.run(
        ["git", "apply", "-"], input=rows["workers=4"]["edit"] + "\n", cwd=folder, text=True
    )
    assert patched.returncode == 0
    compile((folder / "train.py").read_text(), "train.py", "exec")


def test_whole_epochs_are_measured_so_that_the_start_of_workers_counts(tmp_path: Path) -> None:
    text = PROGRAM.replace("return 4000", "return 94").replace("time.sleep(0.01)", "time.sleep(0.002)")
    done, document = tried(
        program(tmp_path / "project", text), "--repeats", 1, "workers=1", "--", sys.executable, "train.py", 2
    )
    assert done.returncode in (0, 1), done.stderr
    rows = {row["name"]: row for row in document["variants"]}
    assert rows["workers=1"]["steps"] % 47 == 0  # without whole epochs 50, in which workers may never start


@pytest.mark.timing
def test_without_names_the_diagnosis_chooses_and_a_crash_is_a_row(tmp_path: Path) -> None:
    folder = program(tmp_path / "work")
    done, document = tried(
        folder, "--steps", 25, "--repeats", 1, "--", sys.executable, "train.py", 4, WORKERS="crash"
    )
    assert done.returncode == 0, done.stderr
    row = next((row for row in document["variants"] if row["name"].startswith("workers=")), None)
    if row is None:
        pytest.skip("other programs use the cores of this machine, so no workers are advised")
    assert row["rule"] == "data_loader_single_process"
    assert row["predicted"]
    assert row["status"] == "crashed"
    assert "not in a worker" in row["reason"]
    assert "not in a worker" in done.stdout


def test_a_program_that_cannot_be_measured_is_exit_code_1(tmp_path: Path) -> None:
    done, document = tried(
        program(tmp_path / "work", "print('no training')"), "bf16", "--", sys.executable, "train.py"
    )
    assert done.returncode == 1
    assert document["baseline"]["status"] == "no steps"
    assert document["variants"] == []
    assert "could not be measured" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "No command was given"),
        (("worker=2", "--", sys.executable, "train.py"), "no change"),
        (("bf16", "--steps", "9", "--", sys.executable, "train.py"), "--steps must come before the changes"),
        (("--preset", "all", "--", sys.executable, "train.py"), "--preset does not take"),
        (("--preset", "memory", "bf16", "--", sys.executable, "train.py"), "exclude each other"),
        (("--precision", "much", "--", sys.executable, "train.py"), "takes a percentage"),
        (("bf16", "--", "no-such-program"), "command 'no-such-program' was not found"),
        (("bf16", "--", sys.executable, "-u", "-W", "error", "-"), "comes from standard input"),
    ],
)
def test_what_cannot_be_tried_is_said_before_anything_runs(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = subprocess.run(command(*words), cwd=tmp_path, env=variables(), capture_output=True, text=True)
    assert done.returncode == 2
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_was_measured(number: signal.Signals, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    folder, out = program(tmp_path / "work"), tmp_path / "out"
    words = command("--out", out, "--steps", 20, "none", "--", sys.executable, "train.py", 4)
    with subprocess.Popen(
        words, cwd=folder, env=variables(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        process.send_signal(number)
        printed, _ = process.communicate()
    assert re.search(r"baseline: \d+ steps", first)
    assert process.returncode == 0
    document = json.loads((out / "try.json").read_text())
    assert document["interrupted"]
    assert document["baseline"]["status"] == "measured"
    assert "Interrupted" in printed
    assert "baseline" in (out / "report.html").read_text()


HUNGRY = """import resource, sys
import torch
from torch.utils.data import DataLoader, Dataset


class Large(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        return torch.zeros(1 << 20)


torch.set_num_threads(1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loader = DataLoader(Large(), batch_size=16)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 400 * (1 << 20), resource.RLIM_INFINITY))
while True:
    for batch in loader:
        optimizer.zero_grad()
        loss = model(batch[:, :1]).square().mean()
        loss.backward()
        optimizer.step()
"""


def test_the_largest_batch_is_searched_until_memory_runs_out(tmp_path: Path) -> None:
    folder = program(tmp_path / "work", HUNGRY)
    done, document = tried(folder, "--find-batch-size", "--steps", 5, "--", sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    found = document["batch_size"]
    # A batch and its samples are of 8 MiB a sample, and 400 MiB may be had.
    assert 16 <= found["largest"] < found["smallest"] <= 64
    assert "out of memory" in found["reason"]
    assert found["advised"] <= 0.9 * found["largest"]
    assert f"{found['advised']} at most" in " ".join(done.stdout.split())
    sizes = [row for row in document["variants"] if row["status"] == "measured"]
    assert sizes and all(row["samples_per_s"] for row in sizes)

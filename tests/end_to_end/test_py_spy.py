"""``perfwrap run --py-spy`` and ``perfwrap attach`` on real programs, with the real py-spy."""

from __future__ import annotations

import json
import os
import platform
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import find_trainers
from perfwrap.monitors.pyspy import pyspy_tool
from perfwrap.rules.data_loading import _batch_time as making
from perfwrap.run_folder import PY_SPY_FIELDS, RunFolder
from perfwrap.sources.journals import run_journals

pytestmark = pytest.mark.skipif(pyspy_tool.find() is None, reason="py-spy is not installed")
PATIENCE_SECONDS = 200

TRAINING = """
import sys
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 100_000

    def decode(self, index):
        return sum(number * index % 7 for number in range(20_000))  # DECODE

    def __getitem__(self, index):
        return torch.full((8,), float(self.decode(index) % 5))

def keep_books():
    total = 0
    time.sleep(PAUSE)  # gives up Python's lock, which the sampler inside waits for
    for number in range(100_000):
        total += number % 7  # BOOKS
    return total

def main(steps):
    net = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    began = time.monotonic()
    for step, batch in enumerate(DataLoader(Data(), batch_size=16, num_workers=1)):
        net(batch).sum().backward()
        optimizer.step()
        keep_books()
        if step >= steps and time.monotonic() - began > 3:
            break

if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]))
    print("done")
"""

UNTIL_TOLD = """
import sys, time
from pathlib import Path
import torch

def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(500))

def quiet(seconds):
    time.sleep(seconds)

began = time.monotonic_ns()
while not Path(sys.argv[1]).exists():
    for phase in (busy, quiet):
        print(phase.__name__, time.monotonic_ns(), flush=True)
        phase(0.3)
print("end", time.monotonic_ns(), flush=True)
"""

REFUSING = """
import ctypes, os, struct, sys
instruction = struct.Struct("HBBI").pack
program = (
    instruction(0x20, 0, 0, 0)  # the system call's number
    + instruction(0x15, 1, 0, 101)  # ptrace
    + instruction(0x06, 0, 0, 0x7FFF0000)  # is allowed
    + instruction(0x06, 0, 0, 0x00050001)  # fails with EPERM
)
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
text = ctypes.create_string_buffer(program)
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(4, ctypes.addressof(text))), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Runs a command under a filter of system calls that refuses ptrace, as containers have it."""


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """Return the first true value of the condition; fail when there is none in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        select.select([], [], [], 0.02)
    return value


def perfwrap(*words: object) -> list[str]:
    return [sys.executable, "-m", "perfwrap", *map(str, words)]


def write(path: Path, program: str) -> Path:
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    path.write_text(program)
    return path


def log(folder: Path) -> list[dict[str, str]]:
    """Return the lines of py-spy's log."""
    lines = [line for path in folder.glob("tools/py-spy/*.log") for line in path.read_text().splitlines()]
    rows = [line.split("\t") for line in lines]
    return [{"event": row[0], **dict(zip(PY_SPY_FIELDS[row[0]], row[1:], strict=True))} for row in rows]


def spies(folder: Path) -> list[int]:
    """Return the pids of the py-spys that record into a run folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"record" in words and any(word.startswith(os.fsencode(folder)) for word in words):
                found.append(int(entry.name))
    return found


@pytest.fixture
def reported(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a command whose program runs until ``tmp_path/stop`` is there."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: object) -> subprocess.Popen[str]:
        words = [*map(str, command), sys.executable, str(tmp_path / "phases.py"), str(tmp_path / "stop")]
        started.append(
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
        )
        return started[-1]

    write(tmp_path / "phases.py", UNTIL_TOLD)
    yield start
    (tmp_path / "stop").touch()
    for process in started:
        process.communicate(timeout=PATIENCE_SECONDS)


def line_of(program: str, word: str) -> int:
    (number,) = (at for at, text in enumerate(program.splitlines(), 1) if word in text)
    return number


def phases(output: str) -> list[tuple[str, int, int]]:
    """Return what the program did from when to when."""
    rows = [line.split() for line in output.splitlines()]
    moments = [(name, int(time)) for name, time in rows]
    return [(name, begin, end) for (name, begin), (_, end) in zip(moments, moments[1:], strict=False)]


@pytest.mark.timing
@pytest.mark.parametrize(
    "how", [["--py-spy", "--py-spy-rate", "50"], ["--sample", "50"]], ids=["outside", "inside"]
)
def test_findings_quote_the_functions_that_samples_were_in(tmp_path: Path, how: list[str]) -> None:
    program = TRAINING.replace("PAUSE", "0" if how[0] == "--py-spy" else "0.005")
    script = write(tmp_path / "train.py", program)
    command = perfwrap(
        "run", *how, "--no-report", "--out", tmp_path / "run", "--", sys.executable, script, 150
    )
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n")
    timeline = run_journals.read(RunFolder(tmp_path / "run"))
    words = {finding.rule: " ".join(finding.evidence) for finding in diagnose(timeline).findings}
    assert re.search(r"\d+ of \d+ samples there were in ", words["python_overhead"])
    if how[0] == "--py-spy":
        # Which rule quotes it depends on how busy the machine is; the sentence does not.
        evidence = Evidence(timeline)
        (trainer,) = evidence.get(find_trainers)
        (loader,) = evidence.get(find_loaders, trainer)
        reported = " ".join(making.sampled(evidence, trainer, loader))
        assert re.search(r"\d+ of \d+ samples of its workers while batches were made were in ", reported)
        decode = f"train.py:{line_of(TRAINING, 'DECODE')}"
        assert re.search(rf"Data\.decode\S*,?( mostly)? at {decode}", reported)
        assert "were in keep_books" in words["python_overhead"]
        assert "(sampled by py-spy" in words["python_overhead"]
    else:
        assert "(sampled by the recorder" in words["python_overhead"]


@pytest.mark.torch
@pytest.mark.parametrize("options", [[], ["--no-py-spy"], ["--no-monitors"]])
def test_by_default_the_process_that_trains_is_sampled_from_its_start(
    tmp_path: Path, options: list[str]
) -> None:
    script = write(tmp_path / "train.py", TRAINING.replace("PAUSE", "0.001"))
    folder = tmp_path / "run"
    command = perfwrap("run", *options, "--no-report", "--out", folder, "--", sys.executable, script, 60)
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "done\n")
    timeline = run_journals.read(RunFolder(folder))
    if options:
        assert timeline.stacks.is_empty()
        return
    assert [line["event"] for line in log(folder)] == ["begin", "end"]
    (trainer,) = Evidence(timeline).get(find_trainers)
    assert set(timeline.stacks["track"]) >= {trainer.thread}
    tracks = timeline.tracks.filter(pl.col("id").is_in(timeline.stacks["track"].unique().to_list()))
    assert set(tracks["parent"]) == {trainer.process}
    books = line_of(TRAINING.replace("PAUSE", "0.001"), "BOOKS")
    found = timeline.stacks.filter(pl.col("function") == "keep_books", pl.col("track") == trainer.thread)
    assert books in set(found["line"])
    # A process that did not get a core when py-spy's clock was read can shift single samples by some milliseconds.
    assert found["operation"].null_count() >= 0.8 * len(found)
    importing = line_of(TRAINING, "import torch")
    assert importing in set(timeline.stacks.filter(pl.col("function") == "<module>")["line"])


@pytest.mark.timing
def test_stacks_stand_on_the_right_thread_at_the_right_time(tmp_path: Path, reported: Any) -> None:
    folder = tmp_path / "run"
    process = reported(*perfwrap("run", "--py-spy", "--no-report", "--out", folder, "--"))
    wait_for(lambda: log(folder), "py-spy")
    output = "".join(process.stdout.readline() for _ in range(14))
    (tmp_path / "stop").touch()
    output += process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert process.returncode == 0
    timeline = run_journals.read(RunFolder(folder))
    threads = timeline.tracks.filter(pl.col("kind") == "thread", pl.col("tid") == pl.col("pid"))
    (main,) = threads.rows(named=True)
    seen = timeline.stacks.filter(pl.col("function").is_in(["busy", "quiet"]))
    assert set(seen["track"]) == {main["id"]}
    covered = timeline.coverage.filter(pl.col("what") == "py-spy")
    assert covered["note"][0].startswith("at 20 Hz; its times may be off by ")
    known = phases(output)
    # A tenth of a phase is granted: the clocks agree to some milliseconds, but a busy machine may delay py-spy.
    slack = 30_000_000
    right = [
        any(
            name == row["function"] and begin - slack <= row["time"] < end + slack
            for name, begin, end in known
        )
        for row in seen.rows(named=True)
    ]
    assert len(right) >= 10
    assert sum(right) >= 0.9 * len(right)
    # Both phases last equally long, and so do their samples.
    weights = dict(seen.group_by("function").agg(pl.col("weight").sum()).iter_rows())
    assert 0.5 < weights["busy"] / weights["quiet"] < 2


def test_killing_py_spy_or_the_monitors_harms_no_other_process(tmp_path: Path, reported: Any) -> None:
    folder = tmp_path / "run"
    process = reported(*perfwrap("run", "--py-spy", "--no-report", "--out", folder, "--"))
    wait_for(lambda: spies(folder), "py-spy")
    killed = set(spies(folder))
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: set(spies(folder)) - killed, "another py-spy")
    (monitors,) = (
        int(path.name.split("-")[-3])
        for path in folder.glob("journal/*.pwj")
        if b"monitor" in path.read_bytes()[:4096] and b"sidecar" in path.read_bytes()
    )
    for _ in range(4):
        process.stdout.readline()
    os.kill(monitors, signal.SIGKILL)
    (tmp_path / "stop").touch()
    output, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    assert output.splitlines()[-1].startswith("end ")
    assert "the monitors ended by signal 9" in said
    wait_for(lambda: not spies(folder), "the end of py-spy")
    timeline = run_journals.read(RunFolder(folder))
    assert timeline.stacks.filter(pl.col("function") == "busy").height


def test_where_ptrace_is_refused_the_program_is_sampled_from_inside(tmp_path: Path) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("the filter of system calls knows the numbers of x86_64 only")
    script = write(tmp_path / "train.py", TRAINING.replace("PAUSE", "0"))
    wrapped = perfwrap("run", "--py-spy-native", "--no-report", "--out", tmp_path / "run", "--")
    command = [sys.executable, "-c", REFUSING, *wrapped, sys.executable, str(script), "60"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "seccomp filter forbids it" in done.stderr
    assert "--cap-add=SYS_PTRACE" in done.stderr
    assert "sampled inside the program instead" in done.stderr
    assert set(run_journals.read(RunFolder(tmp_path / "run")).stacks["source"]) == {"recorder"}


def test_attaching_shows_what_a_running_job_does_and_ctrl_c_leaves_it_alone(
    tmp_path: Path, reported: Any
) -> None:
    job, folder = reported(), tmp_path / "run"
    job.stdout.readline()
    watching = subprocess.Popen(
        perfwrap("attach", job.pid, "--out", folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: log(folder), "py-spy")
    for _ in range(8):
        job.stdout.readline()
    os.killpg(watching.pid, signal.SIGINT)
    _, said = watching.communicate(timeout=PATIENCE_SECONDS)
    assert watching.returncode == 0
    flowed = " ".join(said.split())
    assert f"attached to process {job.pid}, which is still running" in flowed
    assert "No verdict: perfwrap was attached" in flowed
    assert re.search(r"samples of its own code or of making batches were in (busy|quiet)", flowed)
    assert re.search(r"Its processes used [\d.]+ cores", flowed)
    assert job.poll() is None
    assert not spies(folder)
    (tmp_path / "stop").touch()
    output, _ = job.communicate(timeout=PATIENCE_SECONDS)
    assert (job.returncode, output.splitlines()[-1].split()[0]) == (0, "end")
    diagnosis = json.loads((folder / "diagnosis.json").read_text())
    assert diagnosis["verdict"]["id"] == "unknown"
    assert diagnosis["findings"] == []


def test_attaching_ends_with_the_job(tmp_path: Path, reported: Any) -> None:
    job, folder = reported(), tmp_path / "run"
    job.stdout.readline()
    watching = subprocess.Popen(
        perfwrap("attach", job.pid, "--out", folder, "--no-report", "--name", "seen", "--tags", "a, b,a"),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: log(folder), "py-spy")
    (tmp_path / "stop").touch()
    job.communicate(timeout=PATIENCE_SECONDS)
    watching.communicate(timeout=PATIENCE_SECONDS)
    assert watching.returncode == 0
    manifest = RunFolder(folder).read_manifest()
    assert manifest["attached"] == {"pid": job.pid, "ended": True, "recorder": False}
    assert (manifest["name"], manifest["tags"]) == ("seen", ["a", "b"])


def test_attaching_to_nothing_says_so() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    done = subprocess.run(perfwrap("attach", gone.pid), capture_output=True, text=True)
    assert done.returncode == 2
    assert f"There is no process {gone.pid}." in done.stderr

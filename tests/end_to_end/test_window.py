"""``perfwrap run`` takes a window of PyTorch's profiler, which lands on the run's own tracks and clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals
from perfwrap.timeline.coverage import WINDOW

PROGRAM = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(net.parameters())
inputs = torch.randn(32, 64)
for _ in range(60):
    optimizer.zero_grad()
    loss = net(inputs).pow(2).mean()
    loss.backward()
    optimizer.step()
print(loss.item(), torch.rand(2).tolist())
"""


def perfwrap(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "perfwrap", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    path = tmp_path_factory.mktemp("window") / "train.py"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def recorded(script: Path) -> tuple[RunFolder, subprocess.CompletedProcess[str]]:
    folder = script.parent / "run"
    done = perfwrap("run", "--no-monitors", "--window", "4@30", "--out", folder, "--", sys.executable, script)
    return RunFolder(folder), done


def test_the_program_says_what_it_says_bare(script, recorded) -> None:
    bare = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert (recorded[1].returncode, recorded[1].stdout) == (0, bare.stdout)
    assert "USDT" not in recorded[1].stderr


def test_the_report_says_which_steps_were_watched(recorded) -> None:
    reported = " ".join(recorded[1].stderr.split())
    assert "torch.profiler: steps 31 to 34: tools/window-" in reported
    assert "these steps are excluded above." in reported


@pytest.mark.timing
def test_the_window_is_on_the_trainers_own_track_at_its_own_time(recorded) -> None:
    timeline = run_journals.read(recorded[0])
    trainer = Evidence(timeline).get(find_main_trainer)
    ops = timeline.spans.filter(pl.col("source") == "kineto")
    assert set(ops["track"]) == {trainer.thread}
    steps = timeline.spans.filter(pl.col("source") == "recorder", pl.col("operation") == "optimizer").sort(
        "start"
    )
    marks = ops.filter(pl.col("name").str.starts_with("Optimizer.step#")).sort("start")
    assert marks.height == 4
    own = steps[30:34]
    error = int(Evidence(timeline).get(find_facts, trainer.process)["window/clock_error_ns"])
    before = own["start"] - marks["start"]
    after = (marks["start"] + marks["duration"]) - (own["start"] + own["duration"])
    assert before.min() >= -error
    assert after.min() >= -error
    assert 0 < error <= max(before.min(), after.min()) + 1
    assert ops.filter(pl.col("category") == "step").height == 4


def test_its_steps_are_in_no_figure(recorded) -> None:
    timeline = run_journals.read(recorded[0])
    evidence = Evidence(timeline)
    trainer = evidence.get(find_main_trainer)
    steps, account = evidence.get(find_steps, trainer), evidence.get(find_account, trainer)
    assert steps.count == 60
    # The window begins and is exported just after a step's end: the step that follows is not as usual either.
    assert steps.table.filter("windowed")["index"].to_list() == [30, 31, 32, 33, 34]
    assert steps.table.filter("windowed", "steady").is_empty()
    assert account.segments.filter(pl.col("step").is_in([30, 31, 32, 33, 34])).is_empty()
    assert sum(account.ns.values()) == account.total_ns
    # Only what is done once, at the first step.
    own = account.segments.filter(pl.col("part") == "perfwrap", pl.col("step") > 0)
    assert set(own["name"]) <= {None, "probes"}  # looked at behind a step, whether there is a window or not
    (window,) = timeline.coverage.filter(pl.col("what") == WINDOW).iter_rows(named=True)
    assert not account.holds(pl.Series([window["start"], window["end"] - 1]).to_numpy()).any()


def test_a_file_that_is_damaged_costs_only_itself(script, recorded) -> None:
    whole = run_journals.read(recorded[0])
    (path,) = (recorded[0].path / "tools").glob("window-*.json")
    kept = path.read_bytes()
    try:
        for content in (b"", b"{", kept[: len(kept) // 2], b"\xff" * 100):
            path.write_bytes(content)
            damaged = run_journals.read(recorded[0])
            own = whole.spans.filter(pl.col("source") == "recorder")
            assert damaged.spans.filter(pl.col("source") == "recorder").equals(own)
    finally:
        path.write_bytes(kept)


@pytest.mark.parametrize("words", [("--window", "5"), ("--window", "0@3"), ("--window-detail", "colours")])
def test_what_names_no_steps_is_refused_before_anything_starts(script, tmp_path: Path, words) -> None:
    done = perfwrap("run", *words, "--out", tmp_path / "run", "--", sys.executable, script)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "for example: " in done.stderr or "one or more of" in done.stderr
    assert not (tmp_path / "run").exists()


def test_none_is_taken_where_none_is_wanted(script, tmp_path: Path) -> None:
    words = ["--no-window", "--no-report", "--no-monitors", "--out", tmp_path / "run"]
    done = perfwrap("run", *words, "--", sys.executable, script)
    assert done.returncode == 0
    assert not (tmp_path / "run/tools").exists()
    assert WINDOW not in set(run_journals.read(RunFolder(tmp_path / "run")).coverage["what"])

"""The harness of faults: its short form finds perfwrap unharmed, and it does notice what is harmed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FAULTS = Path(__file__).resolve().parents[3] / "scripts" / "faults"
NEEDS_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def run_faults(*words: str) -> dict[str, dict[str, object]]:
    """Return what the harness found, by fault."""
    command = [sys.executable, str(FAULTS / "faults.py"), "--json", "--rounds", "1", "--steps", "30", *words]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return {found["name"]: found for found in json.loads(answer.stdout)}


def test_a_week_of_records_and_of_samples_fits_and_nothing_grows() -> None:
    found = run_faults("--only", "many_events", "--only", "long_watch")
    assert set(found) == {"many_events", "long_watch"}
    assert all(not result["problems"] and result["rounds"] == 1 for result in found.values())


@NEEDS_TORCH
def test_a_training_loop_does_not_mind_that_the_monitors_are_killed() -> None:
    (found,) = run_faults("--only", "kill_monitors").values()
    assert (found["problems"], found["rounds"]) == ([], 1)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FAULTS))
    return importlib.import_module("trial")


def test_what_is_harmed_is_noticed(trials: ModuleType, tmp_path: Path) -> None:
    trial = trials.Trial(tmp_path, random.Random(0))
    (tmp_path / "run" / "journal").mkdir(parents=True)
    bare = trials.Ended(0, ["pid 1", "step 1", "step 2", "weights a"], "")
    trial.expect_same(trials.Ended(0, ["pid 2", "step 1", "step 2", "weights a"], ""), bare)
    trial.expect_part(trials.Ended(-9, ["pid 2", "step 1"], ""), bare, (-9,))
    trial.expect_steps(0)
    assert trial.problems == []
    trial.expect_same(trials.Ended(1, ["pid 2", "step 1", "step 2", "weights b"], ""), bare)
    trial.expect_part(trials.Ended(-9, ["pid 2", "step 2"], ""), bare, (-9,))
    trial.expect_steps(2)
    trial.expect_readable()
    problems = " ".join(trial.problems)
    assert "exit 1 instead of 0" in problems
    assert problems.count("its output differs") == 2
    assert "2 steps counted, 0 recorded" in problems
    assert "perfwrap report" in problems

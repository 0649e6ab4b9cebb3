"""Rules that a user leaves out: by options and by the settings of a project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "print('no training here')"


def perfwrap(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfwrap", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "80"},
    )


def why_not(run: Path) -> dict[str, str]:
    outcomes = json.loads((run / "diagnosis.json").read_text())["outcomes"]
    return {rule: outcome["why"] for rule, outcome in outcomes.items() if outcome["state"] == "not checked"}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    done = perfwrap(
        tmp_path, "run", "--ignore", "gc_pause", "--out", "first", "--", sys.executable, "-c", PROGRAM
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "first"


def test_the_rules_that_a_run_ignores_are_said(run: Path) -> None:
    assert why_not(run)["gc_pause"] == "It was ignored by --ignore."
    assert perfwrap(run.parent, "report", "first").returncode == 0
    assert "--ignore" not in why_not(run)["gc_pause"]


def test_a_report_goes_by_the_settings_of_the_folder_in_which_it_runs(run: Path) -> None:
    (run.parent / "perfwrap.toml").write_text('ignore = ["slow_steps"]')
    assert perfwrap(run.parent, "report", "first", "--rules", "gc_pause, slow_steps").returncode == 0
    assert "perfwrap.toml" not in why_not(run)["slow_steps"]
    assert why_not(run)["slow_start"] == "It was left out by --rules."
    assert perfwrap(run.parent, "report", "first").returncode == 0
    assert why_not(run)["slow_steps"] == "It was ignored by perfwrap.toml."


def test_a_wrong_name_is_said_before_the_program_runs(tmp_path: Path) -> None:
    done = perfwrap(tmp_path, "run", "--ignore", "gc_pauses", "--", sys.executable, "-c", PROGRAM)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Did you mean gc_pause" in done.stderr


def test_a_wrong_setting_costs_the_report_and_not_the_run(tmp_path: Path) -> None:
    (tmp_path / "perfwrap.toml").write_text("ignore = 3")
    done = perfwrap(tmp_path, "run", "--out", "first", "--", sys.executable, "-c", PROGRAM)
    assert (done.returncode, done.stdout) == (0, "no training here\n")
    assert "list of rule names. To try again: perfwrap report" in done.stderr
    assert '  For example: ["slow_start"]' in done.stderr
    assert (tmp_path / "first" / "run.json").is_file()

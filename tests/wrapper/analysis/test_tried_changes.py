from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from perfwrap.analysis.tried_changes import find_tried

COMMAND = ["python", "train.py"]


def row(name: str, ratio: float | None, status: str = "measured") -> dict[str, Any]:
    low, high = (None, None) if ratio is None else (ratio - 0.05, ratio + 0.05)
    return {"name": name, "status": status, "ratio": ratio, "low": low, "high": high}


def write_trial(folder: Path, rows: list[Any], command: list[str] = COMMAND) -> None:
    folder.mkdir(parents=True)
    (folder / "try.json").write_text(json.dumps({"format": 1, "command": command, "variants": rows}))


def test_a_trial_of_the_same_command_beside_the_run_is_read(tmp_path: Path) -> None:
    write_trial(tmp_path / "2026-try-train", [row("bf16", 0.5), row("compile", None, "crashed")])
    run = tmp_path / "2026-train"
    assert find_tried(run, {"command": COMMAND}) == {"bf16": [0.5, 0.45, 0.55]}


def test_a_trial_of_another_command_is_not(tmp_path: Path) -> None:
    write_trial(tmp_path / "2026-try-train", [row("bf16", 0.5)], ["python", "other.py"])
    assert find_tried(tmp_path / "2026-train", {"command": COMMAND}) == {}
    assert find_tried(tmp_path / "2026-train", {}) == {}


def test_the_last_trial_counts(tmp_path: Path) -> None:
    write_trial(tmp_path / "20260102-try-train", [row("bf16", 0.5)])
    write_trial(tmp_path / "20260101-try-train", [row("bf16", 0.9), row("compile", 0.8)])
    found = find_tried(tmp_path / "run", {"command": COMMAND})
    assert {name: values[0] for name, values in found.items()} == {"bf16": 0.5, "compile": 0.8}


def test_a_run_of_a_trial_reads_the_results_of_that_trial_only(tmp_path: Path) -> None:
    trial = tmp_path / "2026-try-train"
    write_trial(trial, [row("bf16", 0.5)])
    write_trial(trial / "other", [row("compile", 0.5)])
    assert set(find_tried(trial / "01-baseline" / "run", {"command": COMMAND})) == {"bf16"}


@pytest.mark.parametrize(
    "content", ["", "[1]", "{", '{"command": ["python", "train.py"], "variants": 7}', "[" * 9999]
)
def test_a_damaged_file_is_left_out(tmp_path: Path, content: str) -> None:
    trial = tmp_path / "2026-try-train"
    trial.mkdir()
    (trial / "try.json").write_text(content)
    assert find_tried(tmp_path / "run", {"command": COMMAND}) == {}

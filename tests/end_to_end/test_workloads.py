"""Real scripts under the real ``perfwrap run``: the planted problem is found at its line."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).resolve().parents[2] / "scripts" / "workloads"

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed here"),
]


def run(script: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Run a workload with one compute thread, so that busy neighbours do not change where its time goes."""
    return subprocess.run(
        [sys.executable, "-m", "perfwrap", "run", "--out", str(out), "--", sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.timing
@pytest.mark.parametrize(
    ("name", "rule", "verdict"),
    [
        ("single_process_text", "data_loader_single_process", "data-bound"),
        ("gc_collect", "gc_pause", "python-bound"),
        ("non_finite_loss", "non_finite_loss", None),
        ("recompilation", "recompilation", "python-bound"),
        ("zero_grad_memset", "zero_grad_memset", "python-bound"),
    ],
)
def test_a_planted_problem_is_found_at_its_line(
    tmp_path: Path, name: str, rule: str, verdict: str | None
) -> None:
    script, out = WORKLOADS / f"{name}.py", tmp_path / "run"
    ended = run(script, out)
    assert ended.returncode == 0, ended.stderr
    diagnosis = json.loads((out / "diagnosis.json").read_text(encoding="utf-8"))
    found = next(finding for finding in diagnosis["findings"] if finding["rule"] == rule)
    lines = script.read_text(encoding="utf-8").splitlines()
    guilty = {number for number, line in enumerate(lines, start=1) if line.endswith("# guilty")}
    assert found["location"] is not None
    assert Path(found["location"]["file"]).samefile(script)
    assert found["location"]["line"] in guilty
    assert sum(diagnosis["account"].values()) == 1.0
    if verdict is not None:
        assert diagnosis["verdict"]["id"] == verdict
    assert f"Run folder: {out}" in ended.stderr
    assert "perfwrap" not in ended.stdout


@pytest.mark.timing
@pytest.mark.parametrize("name", ["phase_balance", "first_epoch_slower"])
def test_a_planted_problem_without_a_line_is_found(tmp_path: Path, name: str) -> None:
    ended = run(WORKLOADS / f"{name}.py", tmp_path / "run")
    assert ended.returncode == 0, ended.stderr
    diagnosis = json.loads((tmp_path / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    assert name in [finding["rule"] for finding in diagnosis["findings"]]
    on_gpu = [
        outcome for outcome in diagnosis["outcomes"].values() if outcome["why"] == "The model ran on the CPU."
    ]
    assert len(on_gpu) >= 12


def test_a_script_that_trains_nothing_gets_an_honest_answer(tmp_path: Path) -> None:
    script = tmp_path / "hello.py"
    script.write_text("import torch\nprint(torch.ones(3).sum().item())\n", encoding="utf-8")
    ended = run(script, tmp_path / "run")
    assert ended.stdout == "3.0\n"
    assert "No verdict" in ended.stderr
    diagnosis = json.loads((tmp_path / "run" / "diagnosis.json").read_text(encoding="utf-8"))
    assert diagnosis["verdict"]["id"] == "unknown"
    assert diagnosis["findings"] == []

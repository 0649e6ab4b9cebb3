from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.rules.gpu import gpu_use_in_log as rule
from perfwrap.rules.model import Clear
from perfwrap.sources import files


def logged(path: Path, utilization: list[int], gpus: int = 1, unused: int = 0) -> Diagnosis:
    """Return the diagnosis of a log with a line per second and GPU."""
    lines = ["timestamp, index, utilization.gpu [%], power.draw [W]"]
    for second, share in enumerate(utilization):
        at = f"2026/01/01 12:{second // 60:02}:{second % 60:02}.000"
        lines += [f"{at}, {gpu}, {share} %, {70 + 6 * share} W" for gpu in range(gpus)]
        lines += [f"{at}, {gpus + gpu}, 0 %, 70 W" for gpu in range(unused)]
    path.write_text("\n".join([*lines, ""]))
    timeline, (found,) = files.read([path], {})
    assert (found.format, found.problem) == ("nvidia_smi", "")
    return diagnose(timeline)


def test_gpus_that_are_busy_until_their_work_ends_are_compute_bound(tmp_path: Path) -> None:
    diagnosis = logged(tmp_path / "a.csv", [0] * 5 + [98] * 100 + [0] * 60, gpus=8, unused=1)
    assert (diagnosis.verdict.id, diagnosis.verdict.share) == ("compute-bound", pytest.approx(0.98))
    assert "8 GPUs worked at 98 % utilization" in diagnosis.verdict.sentence
    assert "idle 1 min after" in diagnosis.verdict.sentence or "idle 60 s after" in diagnosis.verdict.sentence
    (finding,) = diagnosis.findings
    assert finding.severity == "note"
    assert any("GPU (gpu/8) never worked" in text for text in finding.evidence)
    assert any("658 W" in text for text in finding.evidence)


def test_gpus_that_pause_during_their_work_are_idle(tmp_path: Path) -> None:
    diagnosis = logged(tmp_path / "a.csv", ([100] * 5 + [0] * 15) * 6)
    assert diagnosis.verdict.id == "gpu-idle"
    assert diagnosis.verdict.share == pytest.approx(0.71, abs=0.03)
    assert "nothing to do" in diagnosis.verdict.sentence
    (finding,) = diagnosis.findings
    assert finding.severity == "critical"
    assert any("75 % of the samples are idle" in text for text in finding.evidence)
    assert "perfwrap run" in finding.advice


def test_gpus_that_never_work_are_idle(tmp_path: Path) -> None:
    verdict = logged(tmp_path / "a.csv", [0, 1] * 20).verdict
    assert (verdict.id, verdict.share) == ("gpu-idle", 1.0)


def test_a_few_samples_are_too_few(tmp_path: Path) -> None:
    assert logged(tmp_path / "a.csv", [50] * 5).verdict.id == "unknown"


def test_a_run_of_perfwrap_without_training_is_left_alone(run: Any) -> None:
    monitor = run.journal(pid=999, opened=1_000_000_000, role="monitor")
    for number in range(20):
        monitor.sample("gpu/0", "utilization_share", 0.0, 1_000_000_000 + number)
    assert "gpu_use_in_log" not in {finding.rule for finding in diagnose(run.read()).findings}


def test_gpus_of_a_training_loop_are_left_to_other_rules(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step()
    assert isinstance(gpu_loop.ask(rule), Clear)

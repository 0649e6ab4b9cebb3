from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.rules.kernels import measured_kernels as rule
from perfwrap.rules.model import Clear
from perfwrap.sources import files

NAMES = "ID,Process ID,Process Name,Host Name,Kernel Name,Context,Stream,Block Size,Grid Size,Device,CC"
METRICS = {
    "gpu__time_duration.sum": "us",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "%",
    "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": "%",
}


def measured(path: Path, *kernels: tuple[str, float, float, float]) -> Diagnosis:
    """Return the diagnosis of a raw table of ncu: name, microseconds, per cent of peak compute and of peak memory."""
    lines = [[*NAMES.split(","), *METRICS], [*[""] * 11, *METRICS.values()]]
    for number, (name, *values) in enumerate(kernels):
        place = [
            str(number),
            "77",
            "python",
            "node7",
            name,
            "1",
            "7",
            "(256, 1, 1)",
            "(64, 1, 1)",
            "0",
            "9.0",
        ]
        lines.append([*place, *map(str, values)])
    path.write_text("".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in lines))
    timeline, (found,) = files.read([path], {})
    assert (found.format, found.problem) == ("ncu", "")
    return diagnose(timeline)


@pytest.mark.parametrize(
    ("compute", "memory", "verdict", "words"),
    [
        (12, 91, "memory-bound", "limited by memory bandwidth"),
        (85, 30, "compute-bound", "limited by compute"),
        (80, 78, "compute-bound", "limited by compute and memory bandwidth equally"),
        (20, 30, "latency-bound", "limited by latency"),
    ],
)
def test_the_limit_of_most_of_the_time_is_the_verdict(
    tmp_path: Path, compute: float, memory: float, verdict: str, words: str
) -> None:
    diagnosis = measured(
        tmp_path / "a.csv", ("gemm(float *, int)", 300, compute, memory), ("small(int)", 10, 20, 20)
    )
    assert diagnosis.verdict.id == verdict
    assert words in diagnosis.verdict.sentence
    assert "gemm, reaches" in diagnosis.verdict.sentence
    (finding,) = diagnosis.findings
    assert (finding.rule, finding.severity) == ("measured_kernels", "note")
    assert any(text.startswith("small: 10 µs in 1 launch") for text in finding.evidence)


def test_a_single_launch_may_be_the_wrong_kernel(tmp_path: Path) -> None:
    (finding,) = measured(tmp_path / "a.csv", ("fill(float *)", 30, 70, 22)).findings
    assert any("Only one launch was measured" in text for text in finding.evidence)


def test_a_table_without_percentages_gives_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    header = ",".join(f'"{name}"' for name in [*NAMES.split(","), "gpu__time_duration.sum"])
    values = ",".join(f'"{value}"' for value in ["0", "7", "p", "h", "k", "1", "7", "1", "1", "0", "9", "5"])
    units = ",".join(['""'] * 11 + ['"us"'])
    path.write_text(f"{header}\n{units}\n{values}\n")
    timeline, _ = files.read([path], {})
    assert diagnose(timeline).verdict.id == "unknown"


def test_kernels_of_a_training_loop_are_left_to_other_rules(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step()
    assert isinstance(gpu_loop.ask(rule), Clear)

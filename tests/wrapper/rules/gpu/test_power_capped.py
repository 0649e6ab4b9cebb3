from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.rules.gpu import power_capped as rule
from perfwrap.rules.model import Clear
from perfwrap.sources import files

HEADER = "timestamp, index, utilization.gpu [%], power.draw [W], clocks.sm [MHz], clocks.max.sm [MHz], power.limit [W]"


def logged(path: Path, power: list[float], clock: int, limit: int = 700, gpus: int = 8) -> Diagnosis:
    """Return the diagnosis of a log of loaded GPUs with these powers and one clock."""
    lines = [HEADER]
    for second, watts in enumerate(power):
        at = f"2026/01/01 12:{second // 60:02}:{second % 60:02}.000"
        lines += [
            f"{at}, {gpu}, 100 %, {watts} W, {clock} MHz, 1980 MHz, {limit}.00 W" for gpu in range(gpus)
        ]
    path.write_text("\n".join([*lines, ""]))
    timeline, (found,) = files.read([path], {})
    assert (found.format, found.problem) == ("nvidia_smi", "")
    return diagnose(timeline)


def found(diagnosis: Diagnosis) -> Any:
    """Return the finding about the power, None if there is none."""
    return next((each for each in diagnosis.findings if each.rule == "power_capped"), None)


def test_power_far_below_the_limit_with_lowered_clocks_is_capped_elsewhere(tmp_path: Path) -> None:
    diagnosis = logged(tmp_path / "a.csv", [403, 398, 401, 400] * 10, 1_395)
    assert diagnosis.verdict.id == "throttled"
    assert "8 GPUs never exceed 403 of 700 W" in diagnosis.verdict.sentence
    finding = found(diagnosis)
    assert finding.share == pytest.approx(0.295, abs=0.01)
    assert finding.severity == "critical"
    assert any("the limit of the card is not the cause" in text for text in finding.evidence)
    assert "what caps the power" in finding.advice


def test_a_card_at_its_own_limit_is_capped_by_it(tmp_path: Path) -> None:
    finding = found(logged(tmp_path / "a.csv", [400, 396] * 20, 1_300, limit=400))
    assert "raised (nvidia-smi -pl)" in finding.advice


@pytest.mark.parametrize(
    ("power", "clock"),
    [([690, 680] * 20, 1_935), ([200, 600, 400, 300] * 10, 1_395), ([400] * 10, 1_395)],
    ids=["full clocks", "power that varies", "few samples"],
)
def test_other_loads_are_clear(tmp_path: Path, power: list[float], clock: int) -> None:
    assert found(logged(tmp_path / "a.csv", power, clock)) is None


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("clocks_event_reasons.sw_power_cap", "Active", "the power limit"),
        ("clocks_throttle_reasons.hw_thermal_slowdown", "Active", "heat (hardware)"),
        ("clocks_throttle_reasons.active", "0x0000000000000080", "an external power brake"),
    ],
)
def test_reasons_that_the_driver_gives_are_named(tmp_path: Path, column: str, cell: str, reason: str) -> None:
    lines = [f"timestamp, index, utilization.gpu [%], {column}"]
    for second in range(30):
        shown = cell if second % 2 else "0x0000000000000000" if cell.startswith("0x") else "Not Active"
        lines.append(f"2026/01/01 12:00:{second:02}.000, 0, 100 %, {shown}")
    path = tmp_path / "a.csv"
    path.write_text("\n".join([*lines, ""]))
    timeline, _ = files.read([path], {})
    diagnosis = diagnose(timeline)
    assert diagnosis.verdict.id == "throttled"
    assert f"in up to 50 % of the samples because of {reason}" in diagnosis.verdict.sentence


def test_violations_of_dmon_are_reasons(tmp_path: Path) -> None:
    lines = [
        "# gpu    pwr     sm    mem   pclk  pviol  tviol",
        "# Idx      W      %      %    MHz      %   bool",
    ]
    lines += ["    0    400    100     40   1395     60      0"] * 30
    path = tmp_path / "a.log"
    path.write_text("\n".join([*lines, ""]))
    timeline, _ = files.read([path], {})
    assert "the power limit" in diagnose(timeline).verdict.sentence


def test_gpus_of_a_training_loop_are_left_to_other_rules(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step()
    assert isinstance(gpu_loop.ask(rule), Clear)

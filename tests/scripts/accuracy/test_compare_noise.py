"""Comparisons of real step times: 13 equal runs, the first on a quiet machine, the others on a busy one."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
TIMES = REPOSITORY / "tests" / "samples" / "compare" / "step_times.json"


@pytest.fixture(scope="module")
def compare_noise() -> ModuleType:
    path = REPOSITORY / "scripts" / "accuracy" / "compare_noise.py"
    spec = importlib.util.spec_from_file_location("compare_noise", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def runs() -> list[dict[str, Any]]:
    """Each recorded run as far as a comparison reads it, in the order in which they were recorded."""
    return [
        {
            "run": {"command": ["python", "train.py"], "exit": {"code": 0}, "perfwrap": "0.1"},
            "steps": {"steady": 299, "anchor": "optimizer step (SGD)", "stretches": times},
            "conditions": {},
            "machine": times["machine"],
            "account": {},
            "findings": [],
            "outcomes": {},
        }
        for times in json.loads(TIMES.read_text(encoding="utf-8"))
    ]


def test_recorded_equal_runs_raise_no_false_alarm(compare_noise: ModuleType, runs: list[Any]) -> None:
    pairs = compare_noise.single(runs, runs[1:])
    assert len(pairs) >= 6
    assert compare_noise.false_alarms(compare_noise.outcomes(pairs)) == 0


def test_pairs_drawn_from_a_quiet_run_are_the_same(compare_noise: ModuleType, runs: list[Any]) -> None:
    counted = compare_noise.outcomes(compare_noise.drawn(runs[:1]))
    assert counted.total() == 40
    assert compare_noise.false_alarms(counted) < compare_noise.MAX_FALSE_ALARMS
    assert counted["same"] >= 38


def test_a_tenth_more_is_seen_in_pairs_drawn_from_a_quiet_run(
    compare_noise: ModuleType, runs: list[Any]
) -> None:
    slower = [
        (
            [one],
            [
                compare_noise._with_times(
                    other, [int(1.1 * t) for t in other["steps"]["stretches"]["mean_ns"]]
                )
            ],
        )
        for [one], [other] in compare_noise.drawn(runs[:1])
    ]
    assert compare_noise.outcomes(slower)["slower"] >= 38


def test_a_busy_machine_is_why_recorded_runs_get_no_conclusion(
    compare_noise: ModuleType, runs: list[Any]
) -> None:
    # Without that refusal the same pairs would be judged, and the machine's load with them.
    pairs = compare_noise.single(runs, runs[1:])
    refused = compare_noise.outcomes(pairs)
    insisted = compare_noise.outcomes(pairs, ("load",))
    assert refused["not comparable"] == len(runs) - 1
    assert insisted["not comparable"] == 0

"""The check of the GPU monitors reads samples correctly and distinguishes loads; on a CPU, with made-up samples."""

from __future__ import annotations

import importlib.util
import json
import sys
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from perfwrap.monitors.monitor_journal import JournalWriter

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def units() -> ModuleType:
    sys.path.insert(0, str(SCRIPTS / "gpu"))
    try:
        return importlib.import_module("load_units")
    finally:
        sys.path.pop(0)


GOOD: dict[str, dict[str, float | None]] = {
    "idle": {"busy": 0, "sm": 0, "tensor": 0, "fp32": 0, "dram": 0, "pcie": 0, "watts": 120},
    "one_thread": {"busy": 1, "sm": 0.01, "tensor": 0, "fp32": 0, "dram": 0, "pcie": 0, "watts": 200},
    "copies": {"busy": 0.3, "sm": 0, "tensor": 0, "fp32": 0, "dram": 0.02, "pcie": 5.3e10, "watts": 150},
    "memory": {"busy": 1, "sm": 0.97, "tensor": 0, "fp32": 0.03, "dram": 0.9, "pcie": 0, "watts": 500},
    "fp32": {"busy": 1, "sm": 0.98, "tensor": 0, "fp32": 0.85, "dram": 0.1, "pcie": 0, "watts": 600},
    "bf16": {"busy": 1, "sm": 0.97, "tensor": 0.7, "fp32": 0.01, "dram": 0.2, "pcie": 0, "watts": 690},
    "gaps": {"busy": 0.5, "sm": 0.5, "tensor": 0.35, "fp32": 0, "dram": 0.1, "pcie": 0, "watts": 450},
}


def test_loads_that_look_as_they_must_are_good_enough(units: ModuleType) -> None:
    assert units.judge(GOOD) == []


@pytest.mark.parametrize(
    ("load", "column", "value", "words"),
    [
        ("one_thread", "sm", 0.95, "one_thread: sm_activity_share is 0.95"),
        ("fp32", "tensor", 0.6, "fp32: tensor_activity_share is 0.6"),
        ("bf16", "tensor", 0.01, "bf16: tensor_activity_share is 0.01"),
        ("memory", "dram", 0.1, "memory: dram_activity_share is 0.1"),
        ("copies", "pcie", 1e6, "copies: pcie_rx_bytes_per_s is 1e+06"),
        ("gaps", "busy", 1.0, "gaps: utilization_share is 1"),
        ("gaps", "sm", 0.79, "sm_activity_share during gaps is 0.81 of that during bf16"),
    ],
)
def test_a_figure_that_does_not_fit_its_load_is_named(
    units: ModuleType, load: str, column: str, value: float, words: str
) -> None:
    found = deepcopy(GOOD)
    found[load][column] = value
    assert any(words in problem for problem in units.judge(found))


def test_a_gpu_without_gpm_is_judged_by_what_it_reports(units: ModuleType) -> None:
    found = deepcopy(GOOD)
    for figures in found.values():
        figures.update(dict.fromkeys(units.FROM_GPM))
    assert not units.has_gpm(found)
    assert units.judge(found) == []
    found["one_thread"]["busy"] = 0.0
    assert len(units.judge(found)) == 1


def test_missing_figures_and_loads_that_did_not_run_are_problems(units: ModuleType) -> None:
    found = deepcopy(GOOD)
    del found["bf16"]
    for figures in found.values():
        figures["busy"] = figures["tensor"] = None
    problems = units.judge(found)
    assert "The load bf16 did not run." in problems
    assert "There are no samples of utilization_share." in problems
    assert "There are no samples of tensor_activity_share." in problems


def recorded(folder: Path, samples: list[tuple[str, str, int, float]]) -> Path:
    """Write the journal of monitors that saw two GPUs; return its run folder."""
    (folder / "journal").mkdir(parents=True)
    journal = JournalWriter(folder / "journal", "here")
    for number in (0, 1):
        journal.fact(f"gpu/{number}/uuid", f"GPU-{number}{number}")
    for entity, metric, time, value in samples:
        journal.samples(time, [(journal.series(entity, metric), value)])
    journal.flush()
    return folder


def printed(load: str, uuid: str, begin: int, end: int) -> str:
    reported: dict[str, Any] = {
        "load": load,
        "uuid": uuid,
        "begin_ns": begin * SECOND,
        "end_ns": end * SECOND,
    }
    return json.dumps(reported) + "\n"


def test_a_load_s_figures_are_those_of_its_gpu_in_steady_state(units: ModuleType, tmp_path: Path) -> None:
    series = [
        ("gpu/1", "sm_activity_share", at * SECOND, value) for at, value in ((11, 0.9), (12, 0.2), (13, 0.4))
    ]
    other = [
        ("gpu/0", "sm_activity_share", 12 * SECOND, 1.0),
        ("gpu/1", "sm_activity_share", 21 * SECOND, 1.0),
    ]
    energy = [("gpu/1", "energy_joules", at * SECOND, 1000.0 + 300 * at) for at in range(10, 20)]
    folder = recorded(tmp_path, [*series, *other, *energy])
    found = units.read(folder, printed("bf16", "11", 10, 18) + printed("gaps", "11", 30, 38))
    assert found["bf16"]["sm"] == pytest.approx(0.3)
    assert found["bf16"]["busy"] is None
    assert found["gaps"]["sm"] is None
    assert found["bf16"]["counted_watts"] == pytest.approx(300)
    assert found["gaps"]["counted_watts"] is None
    assert units.read(folder, printed("bf16", "", 10, 18))["bf16"]["sm"] == 1.0


def test_an_energy_counter_that_contradicts_the_samples_is_a_problem(units: ModuleType) -> None:
    found = deepcopy(GOOD)
    found["bf16"]["counted_watts"] = 690.0
    assert units.judge(found) == []
    found["fp32"]["counted_watts"] = 60.0
    (problem,) = units.judge(found)
    assert problem == "fp32: the energy counter shows 60 W, the samples 600 W."


def test_every_load_of_the_program_is_expected_to_look_somehow(units: ModuleType) -> None:
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    spec = importlib.util.spec_from_file_location("loads", SCRIPTS / "gpu" / "loads.py")
    assert spec is not None
    assert spec.loader is not None
    loads = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loads)
    assert list(loads.LOADS) == list(units.EXPECTED)


def test_the_table_has_a_row_for_each_load(units: ModuleType) -> None:
    found = deepcopy(GOOD)
    found["idle"]["sm"] = None
    lines = units.markdown(found).splitlines()
    assert len(lines) == 2 + len(GOOD)
    assert "| idle | 0.0% | - | 0.0% | 0.0% | 0.0% | 0.0 GB/s | 120 W |" in lines

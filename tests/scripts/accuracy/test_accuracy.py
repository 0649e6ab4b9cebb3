from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id

REPOSITORY = Path(__file__).resolve().parents[3]
ORDINARY = sorted((REPOSITORY / "scripts" / "workloads").glob("*.py"))
WORKLOADS = ORDINARY + sorted((REPOSITORY / "scripts" / "wasted_work" / "workloads").glob("*.py"))
GPU_ONLY = {
    "blocking_transfer",
    "device_round_trip",
    "explicit_synchronize",
    "unpinned_transfer",
    "host_sync_in_step",
    "allocator_retries",
    "exposed_communication",
    "exposed_transfer",
    "gpu_waits_for_data",
    "launch_bound",
    "tensor_cores_unused",
    *(
        "degraded_link",
        "unfused_elementwise",
        "misaligned_shapes",
        "cudnn_autotune_off",
        "small_batch",
        "kernel_hotspot",
    ),
    *(
        "slow_attention",
        "layout_conversions",
        "dtype_casts",
        "gpu_throttled",
        "shared_gpu",
        "busy_but_idle_units",
    ),
    "utilization_sawtooth",
    *("gpu_waits_for_host", "small_collectives"),
    *("gpu_memory_growth", "fragmentation", "empty_cache_in_step", "memory_pressure", "data_parallel_module"),
}
WITHOUT_A_SCRIPT = {
    "stalled_run",
    "cpu_affinity_limit",
    "cpu_quota_throttling",
    "swapping",
    "data_loader_wait",
    "profiler_cost",
    "compute_bound",
    "out_of_memory",
    "shared_memory_limit",
    # Only for recordings of other tools without a training loop.
    *("measured_kernels", "gpu_use_in_log", "power_capped", "hottest_functions"),
    *("allocator_churn", "memory_at_peak"),
    # On a CPU the search takes 1 or 2 % of a step, whatever the model: healthy_unused_search.
    "unused_parameter_search",
}
"""Rules without a workload: other rules explain the waits, a killed run has no exit code of its own, and the others
are problems of the machine, not of a script."""


@pytest.fixture
def accuracy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _load("accuracy", monkeypatch)


@pytest.fixture
def labelled(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return _load("labelled", monkeypatch)


def _load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(REPOSITORY / "scripts" / "accuracy"))
    return importlib.import_module(name)


@pytest.mark.parametrize("script", WORKLOADS, ids=lambda path: path.stem)
def test_every_workload_has_a_label_that_names_a_rule(labelled: ModuleType, script: Path) -> None:
    label = labelled.read_label(script)
    known = {rule_id(rule) for rule in RULES}
    assert label.expected in known | {"healthy"}
    assert label.also <= known
    wants_line = " line " in f" {script.read_text().splitlines()[0]} "
    assert bool(label.lines) == wants_line


@pytest.mark.parametrize("script", WORKLOADS, ids=lambda path: path.stem)
def test_no_workload_knows_of_perfwrap(script: Path) -> None:
    assert "perfwrap" not in script.read_text()


def test_every_problem_that_a_cpu_can_have_is_planted(labelled: ModuleType) -> None:
    planted = {labelled.read_label(script).expected for script in WORKLOADS}
    assert {rule_id(rule) for rule in RULES} - GPU_ONLY - WITHOUT_A_SCRIPT <= planted
    assert "healthy" in planted


def test_a_script_says_itself_that_no_rule_was_tuned_on_it(labelled: ModuleType, tmp_path: Path) -> None:
    script = tmp_path / "kept.py"
    script.write_text("# expect: gc_pause line guilty\n# held out\n# also: slow_steps\nx = 1  # guilty\n")
    assert labelled.read_label(script) == labelled.Label(
        "gc_pause", frozenset({4}), frozenset({"slow_steps"}), held_out=True
    )
    assert not labelled.read_label(WORKLOADS[0].with_name("gc_collect.py")).held_out


def test_the_fixed_twin_of_a_script_can_be_a_healthy_workload(labelled: ModuleType, tmp_path: Path) -> None:
    text = "# expect: gc_pause line guilty\n# held out\n# twin: healthy\nx = 1  # guilty\n# fixed: x = 2\n"
    assert labelled.healthy_twin(text) == "# expect: healthy\n# held out\nx = 2\n"
    assert labelled.healthy_twin(text.replace("# twin: healthy\n", "")) is None
    scripts = labelled.workloads(tmp_path)
    twins = {script.stem for script in scripts if script.parent == tmp_path}
    assert "healthy_slow_optimizer" in twins
    assert {labelled.read_label(tmp_path / f"{name}.py").expected for name in twins} == {"healthy"}
    assert {script for script in scripts if script.stem not in twins} == set(ORDINARY)


def place_of(line: int | None) -> dict[str, Any] | None:
    return None if line is None else {"file": "/somewhere/planted.py", "line": line}


def finding(
    rule: str, line: int | None = None, severity: str = "major", other: int | None = None
) -> dict[str, Any]:
    options = [{"location": place_of(line)}, {"location": place_of(other or line)}]
    return {"rule": rule, "severity": severity, "location": place_of(line), "share": 0.2, "options": options}


def test_a_result_is_judged_by_rule_place_and_line(accuracy: ModuleType) -> None:
    label = accuracy.Label("gc_pause", frozenset({7}), frozenset({"slow_steps"}))
    found = [finding("slow_steps"), finding("gc_pause", 7)]
    result = accuracy.Result(Path("planted.py"), label, found, "python-bound")
    assert (result.place, result.right_line, result.alarms, result.good) == (2, True, [], True)
    second = accuracy.Result(Path("planted.py"), label, [finding("gc_pause", 9, other=7)], "python-bound")
    assert second.right_line
    wrong = accuracy.Result(Path("planted.py"), label, [finding("gc_pause", 8)], "python-bound")
    assert (wrong.place, wrong.right_line, wrong.good) == (1, False, False)
    missed = accuracy.Result(Path("planted.py"), label, [finding("data_loader_wait")], "data-bound")
    assert (missed.place, missed.alarms, missed.good) == (None, ["data_loader_wait"], False)


def test_a_healthy_script_may_have_small_findings_only(accuracy: ModuleType) -> None:
    label = accuracy.Label("healthy", frozenset(), frozenset())
    quiet = accuracy.Result(Path("fine.py"), label, [finding("gc_pause", severity="minor")], "healthy")
    loud = accuracy.Result(Path("fine.py"), label, [finding("gc_pause")], "python-bound")
    assert (quiet.good, quiet.first) == (True, "healthy")
    assert (loud.good, loud.first) == (False, "gc_pause")


def test_a_head_line_says_what_starts_a_script(labelled: ModuleType) -> None:
    several = labelled.WORKLOADS / "straggler_compute.py"
    words = labelled.launcher_of(several)
    assert words[1:3] == ["-m", "torch.distributed.run"]
    assert words[-2:] == ["--nproc-per-node", "2"]
    assert labelled.launcher_of(labelled.WORKLOADS / "straggler_data.py") == []


def test_predictions_are_compared_with_what_was_tried(
    accuracy: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {
        "rule": "gc_pause",
        "name": "gc-freeze",
        "ratio": 0.5,
        "predicted": [0.6, 0.8],
        "prediction_error": -0.1,
    }
    inside = {**row, "ratio": 0.7, "prediction_error": 0.0}
    unknown = {**row, "predicted": None, "prediction_error": None}
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "try.json").write_text(json.dumps({"variants": [row, inside, unknown]}))
    assert accuracy.show_predictions(tmp_path) == 0
    printed = capsys.readouterr().out
    assert "predicted 0.60 to 0.80, measured 0.50, error -0.10" in printed
    assert "predicted correctly 1 of 2" in printed
    assert accuracy.show_predictions(tmp_path / "nothing") == 1

"""The check for machines with a GPU reads a profiler's trace rightly, and says so where there is no GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture(scope="module")
def gpu_check() -> Any:
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    sys.path.insert(0, str(SCRIPTS))
    try:
        yield _load("gpu_check")
    finally:
        sys.path.remove(str(SCRIPTS))


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def event(category: str, name: str, start: float, duration: float, correlation: int | None = None) -> Any:
    """Return an event as torch.profiler writes it."""
    arguments = {} if correlation is None else {"correlation": correlation}
    return {"cat": category, "name": name, "ts": start, "dur": duration, "ph": "X", "args": arguments}


TRACE = [
    {"ph": "M", "name": "process_name", "args": {}},
    event("user_annotation", "phase:forward", 0, 10),
    event("cuda_runtime", "cudaLaunchKernel", 1, 1, 1),
    event("cuda_driver", "cuLaunchKernel", 3, 1, 2),
    event("kernel", "gemm", 100, 50, 1),
    event("kernel", "relu", 151, 9, 2),
    event("cuda_runtime", "cudaLaunchKernel", 12, 1, 3),  # between the phases
    event("kernel", "mean", 165, 20, 3),
    event("user_annotation", "phase:backward", 20, 10),
    event("cuda_runtime", "cudaLaunchKernel", 25, 1, 4),
    event("gpu_memset", "Memset", 200, 100, 4),
    event("gpu_user_annotation", "phase:forward", 100, 60),
    event("user_annotation", "phase:forward", 40, 10),
    event("cuda_runtime", "cudaLaunchKernel", 50, 1, 5),
    event("kernel", "gemm", 400, 40, 5),
    event("cuda_runtime", "cudaStreamSynchronize", 60, 500),
    event("cuda_runtime", "cudaDeviceSynchronize", 600, 5),
]


def test_kernels_belong_to_the_phase_that_launched_them(gpu_check: ModuleType) -> None:
    assert gpu_check.phase_times(TRACE) == {"forward": 60 + 40, "backward": 100, "optimizer": 0}


def test_every_wait_for_the_gpu_is_counted(gpu_check: ModuleType) -> None:
    assert gpu_check.count_syncs(TRACE) == 2


def compared(events: float, syncs: int = 3, same: bool = True) -> dict[str, Any]:
    """Return a comparison of which one phase takes so long by perfwrap's events and 100 by the profiler."""
    times = {"profiler_us": 100.0, "events_us": 100.0}
    phases = {"forward": {**times, "events_us": events}, "backward": times, "optimizer": times}
    return {"phases": phases, "syncs": {"bare": 3, "recorded": syncs}, "same_output": same}


@pytest.mark.parametrize("events", [98.5, 101.5])
def test_times_within_two_percent_are_good_enough(gpu_check: ModuleType, events: float) -> None:
    assert gpu_check.judge({"compared": compared(events)}) == []


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (compared(103), "+3.0%"),
        (compared(0), "-100.0%"),
        (compared(100, syncs=4), "4 times"),
        (compared(100, same=False), "printed"),
    ],
)
def test_what_is_not_good_enough_is_said(gpu_check: ModuleType, found: dict[str, Any], word: str) -> None:
    (problem,) = gpu_check.judge({"compared": found})
    assert word in problem


def test_the_table_names_device_phases_and_loops(gpu_check: ModuleType) -> None:
    ratio = gpu_check.overhead.Ratio(0.01, 0.005, 0.015)
    loop = {"step_ns": 2.4e6, "ratios": {"bare again": ratio, "perfwrap run": ratio}}
    found = {"device": "GPU", "torch": "2.13", "compared": compared(101), "problems": ["Bad."]}
    units = {"bf16": dict.fromkeys(gpu_check.load_units.METRICS, 0.5)}
    text = gpu_check.markdown({**found, "loops": {"2.4": loop}, "units": units})
    assert "| bf16 | 50.0% |" in text
    assert "| forward | 0.005 ms | 0.005 ms | +1.0% |" in text
    assert "| 2.40 ms | " in text
    assert text.endswith("Bad.")


def test_parts_of_an_earlier_run_come_from_its_figures(gpu_check: ModuleType) -> None:
    ratio = {"median": 0.01, "low": 0.005, "high": 0.015, "casts": [0.01]}
    loops = {"2.4": {"step_ns": 2.4e6, "ratios": {"perfwrap run": ratio}}}
    read = gpu_check.markdown({"device": "GPU", "torch": "2.13", "loops": loops, "problems": []})
    loops["2.4"]["ratios"]["perfwrap run"] = gpu_check.overhead.Ratio(**ratio)
    assert read == gpu_check.markdown({"device": "GPU", "torch": "2.13", "loops": loops, "problems": []})


PRINTED = "== ordinary\n[0.5]\n== values\n1\n2\nperfwrap: recorded in /tmp/run. To print the report: perfwrap report\n"


def test_what_a_part_printed_is_compared_without_the_launchers_lines(gpu_check: ModuleType) -> None:
    assert gpu_check._parts(PRINTED) == {"ordinary": "[0.5]\n", "values": "1\n2\n"}


def test_a_behaviour_that_differs_is_a_problem_if_bare_runs_agree(gpu_check: ModuleType) -> None:
    same = {"bare": "1\n", "repeatable": True, "different": {}}
    other = {"bare": "1\n", "repeatable": True, "different": {"--window": "2\n"}}
    noisy = {"bare": "1\n", "repeatable": False, "different": {"--window": "2\n"}}
    found = {"graphs": same, "streams": other, "memory": noisy}
    (problem,) = gpu_check.judge({"behaviours": found})
    assert problem == "streams differs under --window: '2', bare '1'."
    text = gpu_check.markdown({"device": "GPU", "torch": "2.13", "behaviours": found, "problems": []})
    assert "Behaviours that are the same: 1 of 2; not repeatable bare: memory." in text


def test_loops_are_measured_as_on_a_cpu_and_fit_the_table(
    gpu_check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVERHEAD_DEVICE", "cpu")
    monkeypatch.setitem(gpu_check.overhead.TURNS, 0.3, (8, 4))
    loops = gpu_check.measure_loops([0.3], 1, 1, tmp_path, "cpu")
    assert list(loops) == ["0.3"]
    assert "perfwrap run" in loops["0.3"]["ratios"]
    found = {"device": "none", "torch": "2.13", "compared": compared(100), "problems": [], "loops": loops}
    assert "| perfwrap run |" in gpu_check.markdown(found)


def test_without_a_gpu_it_says_so_and_ends_with_2() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, str(SCRIPTS / "gpu_check.py")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no GPU" in done.stderr
    assert done.stdout == ""

"""The check for machines with a GPU reads a profiler's trace rightly, and says so where there is no GPU."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
DEVICE = Path(__file__).resolve().parents[1] / "inject" / "perfwrap_recorder" / "queued_device.py"


@pytest.fixture(scope="module")
def parts() -> Iterator[ModuleType]:
    yield from _imported("gpu_parts")


@pytest.fixture(scope="module")
def report() -> Iterator[ModuleType]:
    yield from _imported("gpu_report")


def _imported(name: str) -> Iterator[ModuleType]:
    pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    before = list(sys.path)
    sys.path[:0] = [str(SCRIPTS / "cost"), str(SCRIPTS / "gpu")]
    try:
        yield importlib.import_module(name)
    finally:
        sys.path[:] = before


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


def test_kernels_belong_to_the_phase_that_launched_them(parts: ModuleType) -> None:
    assert parts.phase_times(TRACE) == {"forward": 60 + 40, "backward": 100, "optimizer": 0}


def test_every_wait_for_the_gpu_is_counted(parts: ModuleType) -> None:
    assert parts.count_syncs(TRACE) == 2


def compared(events: float, syncs: int = 3, same: bool = True) -> dict[str, Any]:
    """Return a comparison of which one phase takes so long by perfwrap's events and 100 by the profiler."""
    times = {"profiler_us": 100.0, "events_us": 100.0}
    phases = {"forward": {**times, "events_us": events}, "backward": times, "optimizer": times}
    return {"phases": phases, "syncs": {"bare": 3, "recorded": syncs}, "same_output": same}


@pytest.mark.parametrize("events", [98.5, 101.5])
def test_times_within_two_percent_are_good_enough(parts: ModuleType, events: float) -> None:
    assert parts.judge({"compared": compared(events)}) == []


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (compared(103), "+3.0%"),
        (compared(0), "-100.0%"),
        (compared(100, syncs=4), "4 times"),
        (compared(100, same=False), "printed"),
    ],
)
def test_what_is_not_good_enough_is_said(parts: ModuleType, found: dict[str, Any], word: str) -> None:
    (problem,) = parts.judge({"compared": found})
    assert word in problem


def test_the_table_names_device_phases_and_loops(report: ModuleType) -> None:
    ratio = report.overhead.Ratio(0.01, 0.005, 0.015)
    loop = {"step_ns": 2.4e6, "ratios": {"bare again": ratio, "perfwrap run": ratio}}
    found = {"device": "GPU", "torch": "2.13", "compared": compared(101), "problems": ["Bad."]}
    units = {"bf16": dict.fromkeys(report.load_units.METRICS, 0.5)}
    text = report.markdown({**found, "loops": {"2.4": loop}, "units": units})
    assert "| bf16 | 50.0% |" in text
    assert "| forward | 0.005 ms | 0.005 ms | +1.0% |" in text
    assert "| 2.40 ms | " in text
    assert text.endswith("Bad.")


def test_parts_of_an_earlier_run_come_from_its_figures(report: ModuleType) -> None:
    ratio = {"median": 0.01, "low": 0.005, "high": 0.015, "casts": [0.01]}
    loops = {"2.4": {"step_ns": 2.4e6, "ratios": {"perfwrap run": ratio}}}
    read = report.markdown({"device": "GPU", "torch": "2.13", "loops": loops, "problems": []})
    loops["2.4"]["ratios"]["perfwrap run"] = report.overhead.Ratio(**ratio)
    assert read == report.markdown({"device": "GPU", "torch": "2.13", "loops": loops, "problems": []})


PRINTED = "== ordinary\n[0.5]\n== values\n1\n2\nperfwrap: recorded in /tmp/run. To print the report: perfwrap report\n"


def test_what_a_part_printed_is_compared_without_the_launchers_lines(parts: ModuleType) -> None:
    assert parts.split(PRINTED) == {"ordinary": "[0.5]\n", "values": "1\n2\n"}


def test_a_behaviour_that_differs_is_a_problem_if_bare_runs_agree(
    parts: ModuleType, report: ModuleType
) -> None:
    same = {"bare": "1\n", "repeatable": True, "different": {}}
    other = {"bare": "1\n", "repeatable": True, "different": {"--window": "2\n"}}
    noisy = {"bare": "1\n", "repeatable": False, "different": {"--window": "2\n"}}
    found = {"graphs": same, "streams": other, "memory": noisy}
    (problem,) = parts.judge({"behaviours": found})
    assert problem == "streams differs under --window: '2', bare '1'."
    text = report.markdown({"device": "GPU", "torch": "2.13", "behaviours": found, "problems": []})
    assert "Behaviours that are the same: 1 of 2; not repeatable bare: memory." in text


def planted(cause: str, busy: float, **read: dict[str, float]) -> dict[str, Any]:
    """Return a loop of 100 ns of which the device was busy for a share."""
    return {"cause": cause, "begun_ns": 0, "ended_ns": 100, "busy_ns": 100 * busy, "read": read}


def test_idle_time_must_be_blamed_on_its_cause(parts: ModuleType) -> None:
    right = planted("data", 0.4, events={"data": 0.58}, kernels={"data": 0.62, "sync": 0.01})
    # Events do not show gaps inside of a phase.
    inside = planted("dispatch", 0.5, events={}, kernels={"dispatch": 0.5})
    assert parts.judge({"idle": {"data": right, "dispatch": inside}}) == []
    wrong = planted("sync", 0.4, events={"sync": 0.6}, kernels={"python": 0.6})
    assert parts.judge({"idle": {"sync": wrong}}) == [
        "sync: 0% of the time is blamed on it by kernels, 60% was planted."
    ]


def window(loss: float, *quarters: int) -> dict[str, Any]:
    """Return the times of a loop by quarters."""
    return {"loss": loss, "quarters_ns": list(quarters), "windows": ["steps 11 to 13: tools/window.json"]}


def test_steps_that_stay_slower_after_a_window_are_a_problem(parts: ModuleType, report: ModuleType) -> None:
    windows = {
        "bare": window(0.5, 100, 100, 100, 100),
        "--no-window": window(0.5, 101, 101, 101, 101),
        "auto": window(0.5, 140, 102, 102, 102),
        "kernels": window(0.5, 100, 120, 125, 125),
    }
    (problem,) = parts.judge({"windows": windows})
    assert problem == "kernels: steps after the window take +23.8% longer than without one."
    text = report.markdown({"device": "GPU", "torch": "2.13", "windows": windows, "problems": [problem]})
    assert "| auto | 0.000 ms | 0.000 ms | steps 11 to 13: tools/window.json |" in text
    windows["auto"]["loss"] = 0.6
    assert "auto: the loss is 0.6, bare 0.5." in parts.judge({"windows": windows})


def test_without_a_gpu_it_says_so_and_ends_with_2() -> None:
    torch = pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = subprocess.run([sys.executable, str(SCRIPTS / "gpu_check.py")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "no GPU" in done.stderr
    assert done.stdout == ""


@pytest.mark.timeout(1200)
def test_from_end_to_end_on_a_device_without_hardware(tmp_path: Path) -> None:
    """The stand-in is a device to PyTorch, with real asynchrony; what only a GPU has is left out with the reason."""
    torch = pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this version of torch has no devices that are written in Python")
    spec = importlib.util.spec_from_file_location("queued_device", DEVICE)
    assert spec is not None
    assert spec.loader is not None
    device = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(device)
    device.make_autoload(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    words = [str(SCRIPTS / "gpu_check.py"), "--device", "queued", "--small", "--casts", "1", "--steps", "1"]
    done = subprocess.run(
        [sys.executable, *words, "--minutes", "20", "--json", str(tmp_path / "found.json")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=1200,
    )
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["device"] == "Queued device"
    assert found["skipped"].keys() == {"units", "ncu"}, done.stderr
    assert found["compared"]["same_output"]
    assert found["inspect"]["same_output"]
    assert not found["compared"]["failures"]
    assert all(not part["different"] for part in found["behaviours"].values())
    for cause, idle in found["idle"].items():
        planted = 1 - idle["busy_ns"] / (idle["ended_ns"] - idle["begun_ns"])
        assert 0.3 < planted < 0.8, cause
    (loop,) = found["loops"].values()
    assert {"perfwrap run", "--no-window"} <= loop["ratios"].keys()
    text = (tmp_path / "found.md").read_text()
    assert text == done.stdout
    assert "| blamed by events |" in text
    assert "| perfwrap run |" in text

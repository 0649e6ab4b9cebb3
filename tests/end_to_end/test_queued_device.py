"""Planted idle time on a device with real asynchrony: a thread does what is launched, and keeps the truth.

The device is one to PyTorch, as torch_npu's is: found by ``import torch``, with its own module. Nothing of perfwrap
knows it.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from perfwrap.measures.account.intervals import Intervals, covered, length, union, without
from perfwrap.measures.facts import find_facts
from perfwrap.measures.kernels.gpu_activity import gpu_of
from perfwrap.measures.kernels.phase_idle import find_phase_idle
from perfwrap.measures.steps.steps import find_steps

from .planted import REPOSITORY, SHARE, Recorded, check_blame, check_bounds

DEVICE = REPOSITORY / "tests" / "inject" / "perfwrap_recorder" / "queued_device.py"
PROFILER = DEVICE.with_name("queued_profiler.py")
CAUSES = ("data", "python", "sync", "transfer", "dispatch")


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that makes PyTorch find the device."""
    torch = pytest.importorskip("torch", reason="needs PyTorch in the environment of the tests")
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this version of torch has no devices that are written in Python")
    spec = importlib.util.spec_from_file_location("queued_device", DEVICE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("device")
    module.make_autoload(folder)
    return folder


@pytest.fixture
def record(device: Path, tmp_path: Path) -> Callable[..., Recorded]:
    """Record a loop with a planted cause; a test that runs again on a busy machine records again."""
    path = os.pathsep.join(filter(None, (str(device), os.environ.get("PYTHONPATH", ""))))
    environment = {"PYTHONPATH": path, "GPU_CHECK_DEVICE": "queued"}
    return lambda cause, window="": Recorded(
        tmp_path, cause, environment, (str(PROFILER),) if window else (), window
    )


@pytest.mark.timing
@pytest.mark.parametrize("cause", ["data", "python", "sync", "transfer"])
def test_idle_time_is_blamed_on_its_cause(record: Callable[..., Recorded], cause: str) -> None:
    check_blame(record(cause), cause)


@pytest.mark.timing
def test_gaps_inside_of_a_phase_are_no_idle_time_between_phases(record: Callable[..., Recorded]) -> None:
    run = record("dispatch")
    found = run.evidence.get(find_phase_idle, run.main)
    assert found is not None
    assert sum(found.shares.values()) < 2 * SHARE
    assert 1 - run.share(run.busy()) > 0.3
    check_bounds(run)


@pytest.mark.timing
@pytest.mark.parametrize("cause", CAUSES)
def test_a_record_of_kernels_blames_idle_time_on_its_cause(
    record: Callable[..., Recorded], cause: str
) -> None:
    run = record(cause, "kernels")
    assert run.evidence.get(find_steps, run.main).table.filter("windowed").height >= 20
    gpu = run.evidence.get(gpu_of, run.main)
    assert gpu is not None
    work, copies = run.busy(), run.busy(copies=True)

    def share(intervals: Intervals) -> float:
        return float(covered(intervals, *gpu.events.windows).sum()) / gpu.window_ns

    true_busy, exposed = share(union([work, copies])), share(without(copies, work))
    assert gpu.busy_share == pytest.approx(true_busy, abs=0.01)
    assert length(gpu.exposed_copies) / gpu.window_ns == pytest.approx(exposed, abs=0.01)
    if cause == "transfer":  # The device is busy then, but with nothing else.
        assert exposed > 0.15
        return
    # From a launch to the start of the work the cause is the launch itself.
    true = share(run.idle_in_cause(True, "start" if cause == "dispatch" else "launched"))
    assert true > 0.15, "the loop does not plant what it should"
    assert gpu.idle_shares.get(cause, 0.0) == pytest.approx(true, abs=SHARE), gpu.idle_shares


def test_reads_of_values_are_of_the_device(record: Callable[..., Recorded]) -> None:
    spans = record("sync").evidence.timeline.spans
    reads = spans.filter(pl.col("operation") == "sync", pl.col("name").str.starts_with("Tensor.item"))
    assert reads.height >= 100
    assert (reads["value"] == 1).all()


def test_copies_memory_and_the_name_are_those_of_the_device(record: Callable[..., Recorded]) -> None:
    run = record("transfer")
    copies = run.evidence.timeline.spans.filter(pl.col("operation") == "transfer")
    assert copies.filter(pl.col("value") // 256 == 8_000_000).height >= 100
    facts = run.evidence.get(find_facts, run.main.process)
    assert (facts["device_type"], facts["cuda_device_name"]) == ("queued", "Queued device")
    tracks = run.evidence.timeline.tracks
    counters = tracks.filter(pl.col("kind") == "counter")["name"].to_list()
    assert {"allocated_bytes", "device_allocs_count"} <= set(counters)

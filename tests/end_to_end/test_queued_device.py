"""Planted idle time on a device with real asynchrony: a thread does what is launched, and keeps the truth.

The device is one to PyTorch, as torch_npu's is: found by ``import torch``, with its own module. Nothing of perfwrap
knows it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from perfwrap.measures.account.intervals import Intervals, covered, length, union, without
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.facts import find_facts
from perfwrap.measures.kernels.gpu_activity import gpu_of
from perfwrap.measures.kernels.gpu_work import find_gpu_work, find_timed_phases
from perfwrap.measures.kernels.phase_idle import find_phase_idle
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.steps.steps import find_steps
from perfwrap.run_folder import RunFolder
from perfwrap.sources.journals import run_journals

REPOSITORY = Path(__file__).resolve().parents[2]
DEVICE = REPOSITORY / "tests" / "inject" / "perfwrap_recorder" / "queued_device.py"
PLANTED = REPOSITORY / "scripts" / "gpu" / "planted_idle.py"
PROFILER = DEVICE.with_name("queued_profiler.py")
CAUSES = ("data", "python", "sync", "transfer", "dispatch")
PERFWRAP = (sys.executable, "-m", "perfwrap")
SHARE = 0.05
"""How exactly an idle share of the time must be found."""


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


class Recorded:
    """A recorded loop with a planted cause, and what its device truly did."""

    def __init__(self, device: Path, folder: Path, cause: str, window: str = "") -> None:
        truth = folder / f"{cause}.json"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(device), os.environ.get("PYTHONPATH", "")))),
            "GPU_CHECK_DEVICE": "queued",
            "QUEUED_DEVICE_TRUTH": str(truth),
        }
        options = f"--no-monitors --no-report --max-overhead 100% --out {folder / cause}".split()
        options += ["--window", window] if window else ["--no-window"]
        program = [str(PROFILER), str(PLANTED)] if window else [str(PLANTED)]
        command = [*PERFWRAP, "run", *options, "--", sys.executable, *program, cause]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
        assert done.returncode == 0, done.stderr
        self.printed: dict[str, Any] = json.loads(done.stdout)
        self.evidence = Evidence(run_journals.read(RunFolder(folder / cause)))
        main = self.evidence.get(find_main_trainer)
        assert main is not None
        self.main = main
        self.truth = pl.DataFrame(
            json.loads(truth.read_text()), schema=["name", "launched", "start", "end"], orient="row"
        )

    def busy(self, copies: bool = False, since: str = "start") -> Intervals:
        """Return when the device truly worked, or copied; with ``launched``, when it had something to do."""
        rows = self.truth.filter(pl.col("name").is_in(["h2d", "d2h", "d2d"]) == copies)
        return union([(rows[since].to_numpy(), rows["end"].to_numpy())])

    def idle_in_cause(self, copies: bool, since: str = "launched") -> Intervals:
        """Return when the device had nothing to do while the host was at the cause; copies count as work or not."""
        start, end = np.array(self.printed["planted_ns"], dtype=np.int64).T
        if self.printed["cause"] == "dispatch":  # Each phase launches more slowly than the device works.
            spans = self.evidence.timeline.spans.filter(
                pl.col("track") == self.main.thread,
                pl.col("operation").is_in(["forward", "backward", "optimizer"]),
            )
            start, end = spans["start"].to_numpy(), (spans["start"] + spans["duration"]).to_numpy()
        if (
            self.printed["cause"] == "sync"
        ):  # What follows, until the host launches again, is the wait's as well.
            launched = np.sort(self.truth["launched"].to_numpy())
            end = launched[np.minimum(np.searchsorted(launched, end), launched.size - 1)]
        work = [self.busy(since=since), *([self.busy(True, since)] if copies else [])]
        return without(union([(start, end)]), union(work))

    def share(self, busy: Intervals) -> float:
        """Return the share of the timed steps that these intervals cover."""
        timed = self.evidence.get(find_timed_phases, self.main)
        assert timed is not None
        start, end = timed.start[timed.counts], timed.end[timed.counts]
        return float(covered(busy, start, end).sum() / (end - start).sum())


@pytest.fixture
def record(device: Path, tmp_path: Path) -> Callable[..., Recorded]:
    """Record a loop with a planted cause; a test that runs again on a busy machine records again."""
    return lambda cause, window="": Recorded(device, tmp_path, cause, window)


@pytest.mark.timing
@pytest.mark.parametrize("cause", ["data", "python", "sync", "transfer"])
def test_idle_time_is_blamed_on_its_cause(record: Callable[..., Recorded], cause: str) -> None:
    run = record(cause)
    found = run.evidence.get(find_phase_idle, run.main)
    assert found is not None
    assert found.steps >= 20
    true = run.share(run.idle_in_cause(copies=False))
    assert true > 0.15, "the loop does not plant what it should"
    assert found.shares.get(cause, 0.0) == pytest.approx(true, abs=SHARE), found.shares
    assert next(iter(found.idle_ns)) == cause
    _check_bounds(run)


def _check_bounds(run: Recorded) -> None:
    """Check that the truth lies between the bounds of the events."""
    work = run.evidence.get(find_gpu_work, run.main)
    assert work is not None
    least, most = work.busy_share
    assert least <= run.share(run.busy(since="launched")) + SHARE
    assert run.share(run.busy()) <= most + SHARE


@pytest.mark.timing
def test_gaps_inside_of_a_phase_are_no_idle_time_between_phases(record: Callable[..., Recorded]) -> None:
    run = record("dispatch")
    found = run.evidence.get(find_phase_idle, run.main)
    assert found is not None
    assert sum(found.shares.values()) < 2 * SHARE
    assert 1 - run.share(run.busy()) > 0.3
    _check_bounds(run)


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

"""Traces in torch.profiler's format with one planted problem: it is the verdict, at its place in the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.sources import files

from tests.wrapper.sources.traces import Event, lasting, written

GEMM = "ampere_bf16_s16816gemm_bf16_128x128"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
DEVICES = [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42_000_000_000}]


class Written:
    """A trace of one thread and one GPU; times are in microseconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._calls = 0

    def host(self, category: str, name: str, start: float, took: float) -> None:
        """Write what the thread did."""
        self.events.append(lasting(category, name, start, took, 7))

    def kernel(self, name: str, start: float, took: float, launched: float, stream: int = 20) -> None:
        """Write a kernel and the call that launched it."""
        self._work("kernel", name, start, took, launched, 8, stream, "cudaLaunchKernel")

    def copy(self, name: str, start: float, took: float, called: float, blocked: float) -> None:
        """Write a copy and the call that started it."""
        self._work("gpu_memcpy", name, start, took, called, blocked, 21, "cudaMemcpyAsync")

    def _work(
        self,
        category: str,
        name: str,
        start: float,
        took: float,
        at: float,
        call_took: float,
        stream: int,
        call: str,
    ) -> None:
        self._calls += 1
        link = {"correlation": self._calls}
        self.events.append(lasting("cuda_runtime", call, at, call_took, 7, **link))
        self.events.append(lasting(category, name, start, took, stream, device=0, stream=stream, **link))

    def diagnosed(self, path: Path) -> Diagnosis:
        """Return the diagnosis of the trace as an imported file."""
        timeline, (found,) = files.read([written(path, self.events, deviceProperties=DEVICES)], {})
        assert (found.format, found.problem) == ("kineto", "")
        return diagnose(timeline)


def test_a_blocking_copy_in_a_range_of_the_program_is_the_verdict(tmp_path: Path) -> None:
    trace = Written()
    for start in range(0, 6 * 180_000, 180_000):
        trace.host("user_annotation", f"ProfilerStep#{start // 180_000}", start, 180_000)
        trace.host("user_annotation", "## sparse_data_dist ##", start + 500, 129_000)
        trace.host("cpu_op", "aten::to", start + 800, 128_000)
        trace.copy("Memcpy DtoH (Device -> Pageable)", start + 128_600, 20, start + 900, 127_800)
        trace.host("user_annotation", "## forward ##", start + 130_000, 20_000)
        trace.host("user_annotation", "## backward ##", start + 150_000, 25_000)
        for number in range(60):
            trace.host("cpu_op", "aten::mm", start + 130_000 + number * 700, 300)
            trace.kernel(GEMM, start + 130_200 + number * 700, 500, start + 130_100 + number * 700)
        for number in range(3):
            trace.kernel(
                ALL_REDUCE, start + 172_500 + number * 2_400, 2_300, start + 172_000 + number * 30, 30
            )
        trace.host("user_annotation", "Optimizer.step#SGD.step", start + 175_000, 300)
    diagnosis = trace.diagnosed(tmp_path / "trace.json")
    assert diagnosis.verdict.id == "transfer-bound"
    assert diagnosis.verdict.share == pytest.approx(0.69, abs=0.03)
    assert "most of it in the range sparse_data_dist" in diagnosis.verdict.sentence
    first = diagnosis.findings[0]
    assert first.rule == "gpu_waits_for_host"
    assert any("inside cudaMemcpyAsync: 6 calls, 640 ms on the host" in text for text in first.evidence)
    launches = next(finding for finding in diagnosis.findings if finding.rule == "launch_bound")
    assert any("inside the range backward" in text for text in launches.evidence)


def test_hundreds_of_small_collectives_are_told_from_launches(tmp_path: Path) -> None:
    trace = Written()
    for start in range(0, 4 * 130_000, 130_000):
        trace.host("user_annotation", f"ProfilerStep#{start // 130_000}", start, 130_000)
        for number in range(120):
            trace.host("cpu_op", "aten::mm", start + number * 500, 60)
            trace.kernel(GEMM, start + 300 + number * 500, 490, start + 20 + number * 500)
        for number in range(404):
            at = start + 62_000 + number * 160
            trace.host("cpu_op", "c10d::allreduce_", at, 130)
            trace.host("user_annotation", "nccl:all_reduce", at + 20, 90)
            trace.kernel(ALL_REDUCE, at + 110, 25, at + 90, 30)
        trace.host("user_annotation", "Optimizer.step#SGD.step", start + 127_500, 2_000)
    diagnosis = trace.diagnosed(tmp_path / "trace.json")
    assert diagnosis.verdict.id == "communication-bound"
    assert "404 small collectives per step" in diagnosis.verdict.sentence
    assert "bucket_cap_mb" in diagnosis.findings[0].advice
    shares = {finding.rule: finding.share for finding in diagnosis.findings}
    # The GPU also waits for the first kernel of each step.
    assert shares.get("launch_bound", 0.0) < 0.05
    assert "exposed_communication" not in shares


@pytest.mark.parametrize("steps", [0, 3])
def test_a_busy_gpu_is_compute_bound_with_and_without_steps(tmp_path: Path, steps: int) -> None:
    trace = Written()
    for number in range(200):
        trace.host("cpu_op", "aten::mm", number * 1_000, 60)
        trace.kernel(GEMM, number * 1_000 + 100, 870, number * 1_000 + 20)
    for number in range(steps):
        trace.host("user_annotation", f"ProfilerStep#{number}", number * 60_000, 60_000)
    verdict = trace.diagnosed(tmp_path / "trace.json").verdict
    assert (verdict.id, verdict.share) == ("compute-bound", pytest.approx(0.87, abs=0.01))
    assert "matrix products 100 %" in verdict.sentence

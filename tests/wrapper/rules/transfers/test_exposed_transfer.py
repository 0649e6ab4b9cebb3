from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules.model import Clear
from perfwrap.rules.transfers import exposed_transfer as rule


def write(gpu_loop: Any, at: float, direction: str = "h2d") -> None:
    for _ in range(10):
        start = gpu_loop.start
        gpu_loop.step()
        gpu_loop.recording.copy(start + at, 400, direction, launched=start + at - 20, value=2**20)
        gpu_loop.start += 500


def test_copies_that_nothing_runs_beside_are_found(gpu_loop: Any) -> None:
    write(gpu_loop, at=1_010)
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.29, abs=0.03)
    assert finding.verdict == "transfer-bound"
    assert "10 copies to the GPU took 4 ms for 10 MiB (2.4 GiB/s)." in finding.evidence


def test_hidden_copies_are_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        start = gpu_loop.start
        gpu_loop.step(kernel=99)
        gpu_loop.recording.copy(start, 400, launched=start - 20)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_copies_to_the_host_are_another_matter(gpu_loop: Any) -> None:
    write(gpu_loop, at=1_010, direction="d2h")
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"

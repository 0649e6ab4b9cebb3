from __future__ import annotations

from typing import Any

import pytest
from perfwrap.rules.data_loading import gpu_waits_for_data as rule
from perfwrap.rules.model import Clear, NotChecked


def test_a_gpu_that_waits_for_batches_is_found(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=40, at_work="data", category="data")
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.54, abs=0.02)
    assert (finding.verdict, finding.confidence) == ("data-bound", "measured")
    assert "10 marked steps" in finding.evidence[0]


def test_between_marked_steps_it_is_inferred(gpu_loop: Any) -> None:
    for start in range(0, 100_000, 10_000):
        gpu_loop.start = start
        gpu_loop.recording.copy(start - 60, 60, launched=start - 70)
        gpu_loop.step()
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.9, abs=0.02)
    assert finding.confidence == "inferred"
    assert finding.evidence[-1].startswith("Estimated")


def test_waits_while_the_gpu_works_are_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=99, at_work="data", category="data")
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"


def test_a_handful_of_kernels_says_nothing(gpu_loop: Any) -> None:
    gpu_loop.step(kernel=40, at_work="data", category="data")
    assert isinstance(gpu_loop.ask(rule), NotChecked)


def test_clocks_that_do_not_fit_leave_it_open(gpu_loop: Any) -> None:
    for number in range(60):
        gpu_loop.recording.work(200 * number, 100, launched=200 * number + 90)
        gpu_loop.recording.host(200 * number + 120, 50, "optimizer", "optimizer")
    answer = gpu_loop.ask(rule)
    assert isinstance(answer, NotChecked)
    assert "clocks" in answer.why

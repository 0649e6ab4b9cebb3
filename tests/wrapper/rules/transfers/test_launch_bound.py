from __future__ import annotations

from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.rules.model import Clear
from perfwrap.rules.transfers import launch_bound as rule


def test_a_gpu_that_waits_for_launches_is_found(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=8)
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.88, abs=0.04)
    assert (finding.verdict, finding.confidence) == ("launch-bound", "inferred")
    assert "The median kernel takes 8 µs" in finding.evidence[1]
    assert "10 kernels are launched per step." in finding.evidence
    assert "reduce-overhead" in finding.advice


def test_a_busy_gpu_is_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=99.5)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_a_gpu_that_waits_for_a_checkpoint_is_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=99.5)
    gpu_loop.recording.host(gpu_loop.start, 9_000, "save", "checkpoint")
    gpu_loop.start += 9_000
    gpu_loop.step(kernel=99.5)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"


def test_without_a_trainer_it_is_not_checked(recording: Any) -> None:
    for start in range(0, 10_000, 100):
        recording.work(start, 5, launched=start - 5)
    outcomes = {outcome.rule: outcome.state for outcome in diagnose(recording.build()).outcomes}
    assert outcomes["launch_bound"] == "not checked"


def test_tiny_kernels_are_said(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=4)
    assert any("100 % of the kernels take less than 10 µs" in words for words in gpu_loop.find(rule).evidence)


@pytest.mark.parametrize(
    ("at_line", "kernel", "is_named"),
    [(9, 8, True), (3, 8, False), (9, 85, False)],
    ids=["", "spread", "busy"],
)
def test_launches_outside_the_model_are_at_their_line(
    gpu_loop: Any, at_line: int, kernel: float, is_named: bool
) -> None:
    for _ in range(40):
        gpu_loop.step(kernel=kernel)
    for number in range(10):
        gpu_loop.recording.builder.add_row(
            "stacks",
            time=round((5_000 + 2_000 * number) * 1_000),
            track=gpu_loop.recording.main,
            weight=1,
            operation=None,
            file="metrics.py" if number < at_line else f"other{number}.py",
            line=24,
            function="count_hits",
            stack="",
            source="py-spy",
        )
    finding = gpu_loop.find(rule)
    assert (finding.location is not None) is is_named
    assert ("reduce-overhead" in finding.advice) is not is_named
    if is_named:
        assert (finding.location.file, finding.location.line) == ("metrics.py", 24)
        assert "at metrics.py:24, which torch.compile(model) does not reach" in finding.advice
        assert finding.experiment is None

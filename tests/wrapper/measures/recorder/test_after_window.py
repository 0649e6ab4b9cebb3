"""Steps after torch.profiler's window are compared with those before it."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.measures.recorder.after_window import find_slower_after

FIRST, COUNT, STEPS = 12, 3, 70


def record(
    recording: Any, before_us: float, after_us: float, has_kernels: bool = True, kernel_us: float = 10
) -> None:
    """Record steps on a GPU, three of them by torch.profiler."""
    now = begun = ended = 0.0
    for number in range(STEPS):
        took = before_us if number < FIRST else after_us
        if number == FIRST:
            begun = now
        if FIRST <= number < FIRST + COUNT and has_kernels:
            for place in range(30):
                recording.work(now + 20 * place, kernel_us, launched=now + 20 * place - 3)
        recording.optimizer(now + took)
        now += took
        if number == FIRST + COUNT - 1:
            ended = now
    recording.window(begun, ended)


def slower(recording: Any) -> float | None:
    evidence = Evidence(recording.build())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    return evidence.get(find_slower_after, trainer)


@pytest.mark.parametrize(("after", "found"), [(1_280, 0.28), (1_050, None), (800, None)])
def test_only_steps_that_are_clearly_slower_count(recording: Any, after: float, found: float | None) -> None:
    record(recording, 1_000, after)
    assert slower(recording) == (None if found is None else pytest.approx(found, abs=0.01))


def test_without_kernels_no_library_stays_attached(recording: Any) -> None:
    record(recording, 1_000, 1_280, has_kernels=False)
    assert slower(recording) is None


def test_a_queue_that_fills_is_no_slower_launch(recording: Any) -> None:
    """The host of a loop that the GPU limits runs ahead in the first steps."""
    record(recording, 100, 600, kernel_us=20)
    assert slower(recording) is None


def test_the_report_warns(recording: Any) -> None:
    record(recording, 1_000, 1_280)
    warnings = diagnose(recording.build()).warnings
    assert any("took 28 % longer than those before it" in warning for warning in warnings)

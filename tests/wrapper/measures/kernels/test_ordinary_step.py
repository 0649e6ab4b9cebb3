"""The GPU's time in ordinary steps is that of the recorded ones, without what torch.profiler added to the host."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.ordinary_step import OrdinaryStep, find_ordinary_step
from perfwrap.measures.main_trainer import find_main_trainer

US = 1_000
RECORDED, STEPS = range(20, 25), 60


def ordinary(
    recording: Any,
    step_us: float,
    recorded_us: float,
    kernel_us: float,
    note: str = "steps 21 to 25: tools/x",
) -> OrdinaryStep:
    """Record steps, five of them with a kernel each by torch.profiler, which made them longer."""
    now, window = 0.0, []
    for number in range(STEPS):
        is_recorded = number in RECORDED
        took = recorded_us if is_recorded else step_us
        if is_recorded:
            window.append(now)
            recording.step(now, took)
            recording.work(now + took - kernel_us, kernel_us, launched=now + took - kernel_us - 3)
            recording.host(now, took - kernel_us, "op")
        recording.optimizer(now + took)
        now += took
    recording.window(window[0], window[-1] + recorded_us, note)
    evidence = Evidence(recording.build())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    found = evidence.get(find_ordinary_step, trainer)
    assert found is not None
    return found


def test_the_time_that_the_profiler_added_is_no_idle_time(recording: Any) -> None:
    found = ordinary(recording, step_us=800, recorded_us=1_000, kernel_us=700)
    assert found.added_ns == pytest.approx(200 * US, rel=0.05)
    assert found.busy_share == pytest.approx(700 / 800, abs=0.02)
    assert sum(found.idle.values()) == pytest.approx(100 / 800, abs=0.02)


def test_no_more_is_taken_off_than_the_host_was_at_work(recording: Any) -> None:
    found = ordinary(recording, step_us=500, recorded_us=1_000, kernel_us=700)
    assert found.added_ns <= 300 * US
    assert found.busy_share <= 1.0


def test_recorded_steps_that_are_not_slower_are_ordinary(recording: Any) -> None:
    found = ordinary(recording, step_us=1_000, recorded_us=1_000, kernel_us=700)
    assert found.added_ns == 0
    assert found.busy_share == pytest.approx(0.7, abs=0.02)


def test_without_other_steps_the_recorded_ones_count(recording: Any) -> None:
    for number in range(10):
        recording.step(1_000 * number, 1_000)
        recording.work(1_000 * number + 300, 700, launched=1_000 * number + 290)
        recording.host(1_000 * number, 290, "optimizer", "optimizer")
    evidence = Evidence(recording.build())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    found = evidence.get(find_ordinary_step, trainer)
    assert found is not None
    assert found.added_ns == 0
    assert found.busy_share == pytest.approx(0.7, abs=0.05)


def test_what_the_gpu_does_in_the_window_is_a_share_of_whole_steps(recording: Any) -> None:
    """Ordinary steps wait for a batch that the recorded ones had at once: a kernel is a small part of them."""
    found = ordinary(recording, step_us=4_000, recorded_us=1_000, kernel_us=700)
    window_us = 5 * 1_000 - 300  # from the first kernel to the end of the last
    assert found.window_share == pytest.approx(window_us / 5 / 4_000, rel=0.01)
    assert found.busy_share == pytest.approx(700 / 4_000, abs=0.01)


def test_a_gpu_is_never_busy_more_than_all_of_the_time(recording: Any) -> None:
    found = ordinary(recording, step_us=690, recorded_us=1_000, kernel_us=700)
    assert found.busy_share == found.computing_share == 1.0


def test_a_part_of_a_step_is_not_taken_for_a_whole_one(recording: Any) -> None:
    """A window ends within a step of more than a second: the GPU was as busy as in the part that it holds."""
    found = ordinary(recording, 3_000, 1_000, 990, note="a part of step 21: tools/x")
    assert found.busy_share == pytest.approx(0.99, abs=0.01)
    assert found.window_share == 1.0

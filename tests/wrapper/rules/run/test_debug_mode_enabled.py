from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.run import debug_mode_enabled as rule


def write(loop: Any, steps: int = 40, **facts: object) -> None:
    for key, value in facts.items():
        loop.journal.fact(key.replace("__", "/"), value)
    for _ in range(steps):
        loop.compute()


def test_anomaly_detection_is_found_at_its_line(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, anomaly_detection=True, anomaly_detection__line="train.py\x1f5\x1fmain")
    finding = find(rule)
    assert str(finding.location) == "train.py:5"
    assert finding.share == pytest.approx(0.89 * 0.9, abs=0.01)
    assert finding.saving == pytest.approx((1 - 0.89 * 0.9, 1 - 0.19 * 0.9), abs=0.01)
    assert finding.experiment == "no-debug"


def test_the_programs_own_profiler_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, user_profiler=True, user_profiler__line="train.py\x1f7\x1fmain")
    assert "train.py:7" in find(rule).sentence


def test_what_was_on_for_a_few_steps_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, steps=5, user_profiler=True)
    write(loop, steps=40, user_profiler=False)
    assert isinstance(ask(rule), Clear)


def test_what_was_off_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, anomaly_detection=False, user_profiler=False, sync_debug_mode=0)
    assert isinstance(ask(rule), Clear)


def test_on_a_gpu_launch_blocking_is_reported_without_a_guess_at_its_cost(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, model__Net__device="cuda:0", env__CUDA_LAUNCH_BLOCKING="1")
    finding = find(rule)
    assert finding.health
    assert finding.share == 0
    assert finding.saving == (1.0, 1.0)


def test_on_a_cpu_nothing_is_said_of_cuda_or_nccl(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, model__Net__device="cpu", env__CUDA_LAUNCH_BLOCKING="1", env__NCCL_DEBUG="INFO")
    assert isinstance(ask(rule), Clear)


def test_with_many_processes_verbose_collectives_are_reported(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, world_size=4, env__TORCH_DISTRIBUTED_DEBUG="DETAIL")
    assert "TORCH_DISTRIBUTED_DEBUG" in find(rule).sentence


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, steps=10, anomaly_detection=True)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["debug_mode_enabled"]
    assert outcome.state == "not checked"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import worker_lock_contention as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

WAITING = {"running_share": 0.1, "disk_wait_share": 0.0, "cpu_cores": 0.1, "threads": 3.0}


def write(loop: Any, wait: float = 30, workers: int = 2, **series: float) -> None:
    loop.loader(
        num_workers=workers,
        prefetch_factor=2,
        workers=" ".join(str(101 + number) for number in range(workers)),
    )
    for _ in range(40):
        loop.batch(wait)
        loop.compute()
    for number in range(workers):
        loop.worker(number, 79, **{**WAITING, **series})
    loop.cores(2, busy=0.5)


def test_workers_that_wait_for_each_other_are_found_where_samples_are_made(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, file_lock_wait_share=0.45, lock_wait_share=0.0)
    finding = find(rule)
    assert finding.share == pytest.approx(0.75, abs=0.02)
    assert finding.saving[0] == pytest.approx(0.55, abs=0.03)
    assert finding.saving[1] == 1.0
    assert str(finding.location) == "train.py:7"
    assert "45 %" in finding.evidence[0]
    assert "More workers do not help" in finding.advice


def test_it_is_reported_instead_of_too_few_workers(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, file_lock_wait_share=0.0, lock_wait_share=0.6)
    assert [finding.rule for finding in diagnosis().findings] == ["worker_lock_contention"]


@pytest.mark.parametrize(
    "series",
    [
        {"file_lock_wait_share": 0.05, "lock_wait_share": 0.05},
        {"file_lock_wait_share": 0.0, "lock_wait_share": 0.8, "threads": 11.0},
    ],
    ids=["now and then", "threads of its own"],
)
def test_other_waits_are_clear(loop: Any, ask: Callable[[Rule], Answer], series: dict[str, float]) -> None:
    write(loop, **series)
    assert isinstance(ask(rule), Clear)


def test_one_worker_waits_for_no_other(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, workers=1, file_lock_wait_share=0.6, lock_wait_share=0.0)
    assert isinstance(ask(rule), Clear)


def test_without_a_recording_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    assert isinstance(ask(rule), NotChecked)

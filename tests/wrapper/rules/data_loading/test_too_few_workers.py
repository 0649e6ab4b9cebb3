from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import too_few_workers as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, wait: float = 30, steps: int = 40, workers: int = 1) -> None:
    loop.loader(
        num_workers=workers, prefetch_factor=2, workers=" ".join(str(101 + n) for n in range(workers))
    )
    for _ in range(steps):
        loop.batch(wait)
        loop.compute()


def test_busy_workers_are_found_with_the_number_that_keeps_up(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    loop.worker(0, 39, running_share=1, disk_wait_share=0, cpu_cores=1)
    loop.cores(16, busy=2)
    finding = find(rule)
    assert finding.share == pytest.approx(0.75, abs=0.02)
    # 4 workers would keep up exactly, with no time to send a batch.
    assert finding.experiment == "workers=5"
    assert "num_workers=5 instead of 1" in finding.advice
    assert str(finding.location) == "train.py:12"
    best, worst = finding.saving
    assert best == pytest.approx(10 / 40, abs=0.02)
    assert best < worst < 0.5


def test_workers_that_wait_for_a_server_may_be_more_than_the_cores(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    loop.worker(0, 39, running_share=0.1, disk_wait_share=0, cpu_cores=0.1)
    loop.cores(2, busy=1)
    finding = find(rule)
    assert finding.experiment == "workers=4"
    assert finding.saving[0] < 0.5
    # If the server serves one worker at a time, only the tenth that computes overlaps.
    assert finding.saving[1] == pytest.approx(0.95, abs=0.02)
    assert "90 %" in " ".join(finding.evidence)


def test_where_the_cores_are_full_more_workers_are_not_advised(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    write(loop, wait=10, workers=2)
    for number in range(2):
        loop.worker(number, 39, running_share=1, disk_wait_share=0, cpu_cores=0.8)
    loop.cores(2, busy=2)
    assert isinstance(ask(rule), Clear)


def test_workers_with_time_to_spare_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    loop.worker(0, 9, idle=30)
    loop.cores(16, busy=2)
    assert isinstance(ask(rule), Clear)


def test_without_records_of_the_workers_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    assert isinstance(ask(rule), NotChecked)

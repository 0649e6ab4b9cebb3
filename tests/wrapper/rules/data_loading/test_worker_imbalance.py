from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import worker_imbalance as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, wait: float = 20, workers: str = "101 102 103") -> None:
    loop.loader(num_workers=3, workers=workers)
    for _ in range(60):
        loop.batch(wait)
        loop.compute()


def test_one_slow_worker_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop)
    loop.journal.fact("torch", "2.6.0")
    loop.worker(0, 89)
    loop.worker(1, 9, idle=80)
    loop.worker(2, 9, idle=80)
    finding = find(rule)
    assert finding.share == pytest.approx(20 / 30, abs=0.02)
    assert "9x" in finding.title
    assert "Worker 0 takes 90 ms" in finding.evidence[0]
    # The mean of 90, 10 and 10 ms on three workers is 12 ms a batch.
    assert finding.saving[0] == pytest.approx(12.2 / 30, abs=0.02)
    assert "in_order=False" in finding.options[1].edit


def test_in_order_is_advised_only_where_torch_has_it(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop)
    loop.journal.fact("torch", "2.5.1")
    loop.worker(0, 89)
    loop.worker(1, 9, idle=80)
    loop.worker(2, 9, idle=80)
    assert len(find(rule).options) == 1


def test_even_workers_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    for number in range(3):
        loop.worker(number, 80 + number)
    assert isinstance(ask(rule), Clear)


def test_a_slow_worker_with_time_to_spare_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    loop.worker(0, 39, idle=50)
    loop.worker(1, 9, idle=80)
    loop.worker(2, 9, idle=80)
    assert isinstance(ask(rule), Clear)


def test_without_records_of_the_workers_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    assert isinstance(ask(rule), NotChecked)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import slow_collate as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, wait: float = 10) -> None:
    loop.loader(num_workers=1, workers="101")
    for _ in range(40):
        loop.batch(wait)
        loop.compute()


def test_a_collate_function_that_takes_most_of_a_batch_is_found_at_its_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    loop.worker(0, 5, collate=15, running_share=1, disk_wait_share=0, cpu_cores=1)
    loop.cores(2)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert str(finding.location) == "train.py:9"
    assert "75 %" in finding.title
    best, worst = finding.saving
    assert best == pytest.approx(0.5, abs=0.02)
    assert worst == pytest.approx(0.625, abs=0.02)


def test_a_quick_collate_function_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    loop.worker(0, 18, collate=2)
    assert isinstance(ask(rule), Clear)


def test_one_without_a_wait_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, wait=0.1)
    loop.worker(0, 2, collate=6)
    assert isinstance(ask(rule), Clear)


def test_without_records_of_the_workers_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    assert isinstance(ask(rule), NotChecked)

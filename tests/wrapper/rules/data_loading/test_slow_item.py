from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import slow_item as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, wait: float = 10) -> None:
    loop.loader(num_workers=1, workers="101")
    for _ in range(40):
        loop.batch(wait)
        loop.compute()


def test_slow_samples_are_found_where_they_are_made(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop)
    loop.worker(0, 19, running_share=1, disk_wait_share=0, cpu_cores=1)
    loop.cores(16)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert str(finding.location) == "train.py:7"
    assert "--py-spy" in finding.advice
    assert finding.saving[0] == pytest.approx(0.5, abs=0.02)
    assert finding.saving[1] == 1.0


def test_the_hottest_line_is_named_where_stacks_were_sampled(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    worker = loop.worker(0, 19)
    for number in range(20):
        moment = loop.journal.now - (number + 1) * 10_000_000
        worker.record(66, moment, 1_000_000, 1, "fetch\x1ftrain.py\x1f31\x1fData.decode")
    finding = find(rule)
    assert str(finding.location) == "train.py:31"
    assert "train.py:31" in finding.advice


def test_quick_samples_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    loop.worker(0, 5, collate=15)
    assert isinstance(ask(rule), Clear)


def test_batches_that_were_ready_are_not_their_fault(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.loader(num_workers=1, workers="101")
    for _ in range(40):
        loop.journal.queue(2)
        loop.batch(10)
        loop.compute()
    loop.worker(0, 19)
    assert isinstance(ask(rule), Clear)


def test_without_records_of_the_workers_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    assert isinstance(ask(rule), NotChecked)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import needless_workers as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, receive: float = 4, ready: int = 2, workers: int = 2) -> None:
    loop.loader(num_workers=workers, workers="101" if workers else None)
    for _ in range(40):
        loop.journal.queue(ready)
        loop.batch(receive)
        loop.compute()


def test_batches_that_are_quicker_to_make_than_to_receive_are_found(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    loop.worker(0, 0.5, collate=0.5, idle=20)
    finding = find(rule)
    assert finding.share == pytest.approx(3 / 14, abs=0.02)
    best, worst = finding.saving
    assert worst == pytest.approx(1 - 0.9 * finding.share)
    # No shared memory (0.4 ms of 1 ms of making), no sleep until a batch comes (0.6 ms of 10 ms), no receiving (4 ms).
    assert best == pytest.approx(0.95 * (0.6 + 9.4) / 14, abs=0.03)
    assert str(finding.location) == "train.py:12"
    assert "4 ms to receive and 1 ms to make" in finding.sentence
    assert "num_workers=0" in finding.advice
    assert finding.experiment == "workers=0"


def test_the_time_is_reported_once(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, receive=10)
    loop.worker(0, 0.5, collate=0.5, idle=20)
    assert [finding.rule for finding in diagnosis().findings] == ["needless_workers"]


@pytest.mark.parametrize(
    ("receive", "ready", "getitem"),
    [(4, 2, 5), (4, 0, 0.5), (1.5, 2, 0.1)],
    ids=["dear to make", "not ready", "little to gain"],
)
def test_workers_that_are_of_use_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], receive: float, ready: int, getitem: float
) -> None:
    write(loop, receive, ready)
    loop.worker(0, getitem, collate=0.5, idle=20)
    assert isinstance(ask(rule), Clear)


def test_a_loader_without_workers_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, workers=0)
    assert isinstance(ask(rule), Clear)


def test_where_others_took_the_cores_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    loop.worker(0, 0.5, collate=0.5, idle=1, running_share=1.0, disk_wait_share=0.0, cpu_cores=0.4)
    assert isinstance(ask(rule), NotChecked)


def test_workers_that_take_the_cores_from_the_training_are_needless(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    loop.worker(0, 0.5, collate=0.5, idle=1, running_share=1.0, disk_wait_share=0.0, cpu_cores=0.4)
    loop.cores(2)
    loop.monitor().fact("cores_online", 2)
    loop.sample("process/100", "cpu_cores", 1.5)
    assert find(rule).experiment == "workers=0"


def test_without_records_of_the_workers_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    assert isinstance(ask(rule), NotChecked)

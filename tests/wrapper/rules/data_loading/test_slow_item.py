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
    loop.cores(2)
    loop.sample("process/100", "cpu_cores", 0.5)
    loop.monitor().fact("cpu_pair_speed", "1.00 1.00")
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert str(finding.location) == "train.py:7"
    workers, cheaper = finding.options
    assert "num_workers=2" in workers.edit
    # 20 ms of making a batch and 10 ms of using it are 15 ms on two cores.
    assert workers.saving[0] <= 15 / 20 <= workers.saving[1]
    assert "--py-spy" in f"{cheaper.edit} {cheaper.details}"
    assert cheaper.saving == (pytest.approx(0.5, abs=0.02), 1.0)


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
    # How many cores there are is unknown, so it is not certain that more workers help.
    assert [option.edit for option in finding.options] == [
        "Make train.py:31 cheaper, the hottest line of loading samples.",
    ]


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

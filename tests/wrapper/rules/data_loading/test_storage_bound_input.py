from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import storage_bound_input as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, wait: float = 30, **settings: object) -> None:
    loop.loader(**{"num_workers": 1, "workers": "101", **settings})
    for _ in range(40):
        loop.batch(wait)
        loop.compute()
    loop.cores(8, busy=1)


def test_workers_that_wait_for_a_disk_are_found_where_they_read(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    loop.worker(
        0, 39, running_share=0.3, disk_wait_share=0.7, cpu_cores=0.25, read_bytes_per_s=float(50 << 20)
    )
    finding = find(rule)
    assert finding.share == pytest.approx(0.75, abs=0.02)
    assert str(finding.location) == "train.py:7"
    words = " ".join(finding.evidence)
    assert "70 %" in words
    assert "50 MiB per second" in words
    assert "num_workers=4" in finding.options[1].edit
    # 40 ms without 70 % of it are 12 ms, on one worker.
    best, worst = finding.saving
    assert best == pytest.approx(12 / 40, abs=0.02)
    assert worst == pytest.approx((1 + best) / 2)


def test_a_training_thread_that_reads_itself_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, num_workers=0, workers="")
    loop.sample("process/100", "running_share", 0.4)
    loop.sample("process/100", "disk_wait_share", 0.6)
    finding = find(rule)
    assert "80 %" in " ".join(finding.evidence)


def test_workers_that_compute_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    loop.worker(0, 39, running_share=0.95, disk_wait_share=0.05, cpu_cores=0.9)
    assert isinstance(ask(rule), Clear)


def test_pauses_that_are_no_reads_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    loop.worker(0, 39, running_share=0.05, disk_wait_share=0, cpu_cores=0.05)
    assert isinstance(ask(rule), Clear)


def test_states_that_were_not_recorded_are_not_guessed(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop)
    loop.worker(0, 39)
    assert isinstance(ask(rule), NotChecked)

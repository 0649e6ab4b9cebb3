from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FROM_GPU, NON_BLOCKING, TO_GPU
from perfwrap.measures.account.what_if import without_measured
from perfwrap.rules.host_sync import host_sync_in_step as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, blocked: float, on_gpu: bool, steps: int = 40) -> None:
    for _ in range(steps):
        loop.compute()
        loop.span("sync", blocked, "Tensor.item", int(on_gpu), 30)


def test_a_cheap_read_on_a_cpu_is_never_blamed(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, blocked=0.002, on_gpu=False)
    assert isinstance(ask(rule), Clear)


def test_a_read_on_a_cpu_that_takes_long_itself_is_blamed(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, blocked=2, on_gpu=False)
    finding = find(rule)
    assert finding.share == pytest.approx(2 / 12, abs=0.01)
    assert str(finding.location) == "train.py:30"
    assert finding.confidence == "measured"
    assert finding.saving == pytest.approx(without_measured(finding.share))


def test_waiting_for_a_busy_gpu_costs_nothing(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, blocked=20, on_gpu=True)
    loop.sample("gpu/0", "utilization_share", 0.99)
    assert isinstance(ask(rule), Clear)


def test_waiting_for_a_gpu_that_idles_costs_at_most_its_idle_share(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, blocked=20, on_gpu=True)
    loop.sample("gpu/0", "utilization_share", 0.6)
    finding = find(rule)
    assert finding.share == pytest.approx(0.4, abs=0.01)
    assert finding.confidence == "inferred"
    assert finding.saving == pytest.approx((0.6, 1.0), abs=0.01)


def test_without_samples_of_the_gpu_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, blocked=20, on_gpu=True)
    answer = ask(rule)
    assert isinstance(answer, NotChecked)
    assert "train.py:30" in answer.why


def test_each_line_is_reported_separately(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.compute()
        loop.span("sync", 2, "Tensor.tolist", 0, 30)
        loop.span("sync", 1, "Tensor.numpy", 0, 31)
    answer = ask(rule)
    assert isinstance(answer, list)
    assert [str(finding.location) for finding in answer] == ["train.py:30", "train.py:31"]


def test_a_copy_from_the_gpu_that_waits_is_blamed(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(40):
        loop.compute()
        loop.span("transfer", 20, "Tensor.cpu", 4096 << 8 | FROM_GPU, 30)
    loop.sample("gpu/0", "utilization_share", 0.6)
    assert str(find(rule).location) == "train.py:30"


def test_copies_that_do_not_wait_are_no_syncs(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.compute()
        loop.span("transfer", 20, "Tensor.to", 4096 << 8 | TO_GPU, 30)
        loop.span("transfer", 20, "Tensor.to", 4096 << 8 | FROM_GPU | NON_BLOCKING, 31)
    loop.sample("gpu/0", "utilization_share", 0.6)
    assert isinstance(ask(rule), Clear)

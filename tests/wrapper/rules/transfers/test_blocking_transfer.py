from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import NON_BLOCKING, PINNED, TO_GPU
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.transfers import blocking_transfer as rule


def write(loop: Any, flags: int, busy: float | None = 0.6) -> None:
    for _ in range(40):
        loop.span("transfer", 10, "Tensor.cuda", 4096 << 8 | flags, 20)
        loop.compute()
    if busy is not None:
        loop.sample("gpu/0", "utilization_share", busy)


def test_a_wait_for_pinned_memory_is_found_at_its_line(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, TO_GPU | PINNED)
    finding = find(rule)
    assert finding.share == pytest.approx(0.4, abs=0.01)
    assert str(finding.location) == "train.py:20"
    assert "non_blocking=True" in finding.advice
    assert finding.experiment == "non-blocking"


@pytest.mark.parametrize("flags", [TO_GPU, TO_GPU | PINNED | NON_BLOCKING])
def test_other_copies_are_clear(loop: Any, ask: Callable[[Rule], Answer], flags: int) -> None:
    write(loop, flags)
    assert isinstance(ask(rule), Clear)


def test_no_time_is_sold_twice(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, TO_GPU | PINNED)
    found = [finding.rule for finding in diagnosis().findings if finding.verdict == "transfer-bound"]
    assert found == ["blocking_transfer"]


def test_how_busy_the_gpu_was_must_be_known(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, TO_GPU | PINNED, busy=None)
    assert isinstance(ask(rule), NotChecked)


def test_on_a_cpu_nothing_is_said_of_a_gpu(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.journal.fact("model/Net/device", "cpu")
    for _ in range(40):
        loop.compute()
    assert ask(rule) == NotChecked("The model ran on the CPU.")


def test_where_the_device_is_not_known_nothing_is_said_of_it(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for _ in range(40):
        loop.compute()
    assert isinstance(ask(rule), Clear)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FROM_GPU, NON_BLOCKING, PINNED, TO_GPU
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.transfers import unpinned_transfer as rule


def write(loop: Any, flags: int, ms: float = 10, busy: float | None = 0.6) -> None:
    for _ in range(40):
        loop.span("transfer", ms, "Tensor.to", 4096 << 8 | flags, 20)
        loop.compute()
    if busy is not None:
        loop.sample("gpu/0", "utilization_share", busy)


def test_copies_from_pageable_memory_are_found_at_their_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, TO_GPU | NON_BLOCKING)
    finding = find(rule)
    assert finding.share == pytest.approx(0.4, abs=0.01)
    assert finding.saving == pytest.approx((0.6, 1.0), abs=0.01)
    assert str(finding.location) == "train.py:20"
    assert finding.experiment == "pin-memory"


def test_the_loader_that_does_not_pin_is_named(loop: Any, find: Callable[[Rule], Finding]) -> None:
    loop.loader(pin_memory=False)
    for _ in range(40):
        loop.batch(0.1)
        loop.span("transfer", 10, "Tensor.to", 4096 << 8 | TO_GPU, 21)
        loop.compute()
    loop.sample("gpu/0", "utilization_share", 0.6)
    assert "train.py:12" in find(rule).advice


@pytest.mark.parametrize("flags", [TO_GPU | PINNED, FROM_GPU])
def test_other_copies_are_clear(loop: Any, ask: Callable[[Rule], Answer], flags: int) -> None:
    write(loop, flags)
    assert isinstance(ask(rule), Clear)


def test_short_copies_and_a_busy_gpu_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, TO_GPU, busy=0.99)
    assert isinstance(ask(rule), Clear)


def test_how_busy_the_gpu_was_must_be_known(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, TO_GPU, busy=None)
    answer = ask(rule)
    assert isinstance(answer, NotChecked)
    assert "train.py:20" in answer.why


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

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfwrap.rules.health import fragmentation as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

GIB = 1 << 30


def train(loop: Any, reserved: float, peak: float, card: float | None = 80) -> None:
    loop.journal.fact("cuda_device", 0)
    for _ in range(30):
        loop.compute()
    for metric, value in (("allocated", 2), ("reserved", reserved), ("peak_allocated", peak)):
        loop.journal.sample("gpu/0", f"{metric}_bytes", value * GIB)
    if card is not None:
        loop.monitor().fact("gpu/0/memory_total_bytes", round(card * GIB))


def test_much_more_reserved_than_was_ever_in_use_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    train(loop, reserved=60, peak=30)
    finding = find(rule)
    assert "30 GiB of GPU memory" in finding.sentence
    assert "expandable_segments:True" in finding.advice


def test_where_segments_are_expandable_already_sizes_are_the_advice(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    loop.journal.fact("env/PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    train(loop, reserved=60, peak=30)
    assert "already expandable" in find(rule).advice


def test_a_reserve_for_the_activations_of_the_next_step_is_clear(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    train(loop, reserved=60, peak=55)
    assert isinstance(ask(rule), Clear)


def test_a_small_part_of_the_card_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    train(loop, reserved=10, peak=4)
    assert isinstance(ask(rule), Clear)


def test_an_unknown_card_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    train(loop, reserved=60, peak=30, card=None)
    assert isinstance(ask(rule), NotChecked)


def test_without_a_gpu_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(30):
        loop.compute()
    assert isinstance(ask(rule), NotChecked)

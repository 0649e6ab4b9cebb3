from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfwrap.rules.health import memory_pressure as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

GIB = 1 << 30


def train(loop: Any, used: float, peak: float | None = None) -> None:
    loop.journal.fact("cuda_device", 0)
    for _ in range(40):
        loop.compute()
    loop.monitor().fact("gpu/0/memory_total_bytes", 80 * GIB)
    loop.sample("gpu/0", "memory_used_bytes", used * GIB)
    if peak is not None:
        loop.journal.sample("gpu/0", "allocated_bytes", GIB)
        loop.journal.sample("gpu/0", "peak_allocated_bytes", peak * GIB)


def test_a_card_that_is_nearly_full_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    train(loop, used=78.4, peak=75)
    finding = find(rule)
    assert "2.0 % of its memory left" in finding.sentence
    assert finding.severity == "minor"
    assert finding.confidence == "measured"


def test_nearly_full_without_the_allocators_word_is_inferred(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    train(loop, used=75)
    assert find(rule).confidence == "inferred"
    assert find(rule).severity == "note"


def test_torchs_own_reserve_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    train(loop, used=78, peak=40)
    assert isinstance(ask(rule), Clear)


def test_a_card_with_room_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    train(loop, used=40, peak=39)
    assert isinstance(ask(rule), Clear)


def test_without_samples_of_a_gpu_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for _ in range(30):
        loop.compute()
    states = {outcome.rule: outcome.state for outcome in diagnosis().outcomes}
    assert states["memory_pressure"] == "not checked"

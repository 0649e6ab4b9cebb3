from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.gpu import utilization_sawtooth as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

MS = 1_000_000


def write(make_loop: Callable[..., Any], values: list[float]) -> None:
    """Write a loop of 2 s beside a GPU whose utilisation was sampled so, evenly."""
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(200):
        loop.compute()
    begin, step = loop.journal.now - 1_900 * MS, 1_800 * MS // max(1, len(values))
    for number, value in enumerate(values):
        loop.monitor().sample("gpu/0", "utilization_share", value, begin + number * step)


def test_swings_are_a_note_with_their_period(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    write(make_loop, [0.0, 0.1, 0.5, 0.95, 1.0, 0.9] * 10)
    finding = find(rule)
    assert finding.informational
    assert "10 times" in finding.evidence[0]
    assert "180 ms" in finding.title


@pytest.mark.parametrize(
    "values", [[0.95] * 60, [0.4, 0.6] * 30, [0.0] * 30 + [1.0] * 30, ([1.0] * 19 + [0.0]) * 6]
)
def test_an_even_gpu_a_narrow_swing_one_start_and_short_dips_are_clear(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer], values: list[float]
) -> None:
    write(make_loop, values)
    assert isinstance(ask(rule), Clear)


def test_without_samples_it_is_not_checked(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    loop.sample("gpu/0", "memory_used_bytes", 1)
    assert isinstance(ask(rule), NotChecked)

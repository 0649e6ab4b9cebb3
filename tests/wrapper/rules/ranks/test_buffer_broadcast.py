from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.ranks import buffer_broadcast as rule

MS = 1_000_000


def train(loop: Any, **facts: object) -> None:
    known = {
        "kind": "DistributedDataParallel",
        "line": "train.py\x1f9\x1fmain",
        "broadcast_buffers": True,
        "buffers": 60,
        "world_size": 2,
        "buffer_broadcast_ns": 2 * MS,
    }
    for key, value in {**known, **facts}.items():
        if value is not None:
            loop.journal.fact(f"parallel/1/{key}", value)
    for _ in range(40):
        loop.compute()


def test_sending_the_buffers_in_each_step_is_found_at_the_models_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    train(loop)
    finding = find(rule)
    assert finding.share == pytest.approx(0.2, abs=0.01)
    assert str(finding.location) == "train.py:9"
    assert "60 buffers, 2 ms" in finding.evidence[0]


@pytest.mark.parametrize(
    "facts",
    [
        {"broadcast_buffers": False},
        {"buffers": 0},
        {"world_size": 1},
        {"buffer_broadcast_ns": MS // 10},
    ],
)
def test_buffers_that_are_not_sent_or_cost_little_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], facts: dict[str, object]
) -> None:
    train(loop, **facts)
    assert isinstance(ask(rule), Clear)


def test_what_was_not_timed_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    train(loop, buffer_broadcast_ns=None)
    assert isinstance(ask(rule), NotChecked)

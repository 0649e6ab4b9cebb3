from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.ranks import unused_parameter_search as rule

MS = 1_000_000


def train(loop: Any, **facts: object) -> None:
    known = {
        "kind": "DistributedDataParallel",
        "line": "train.py\x1f9\x1fmain",
        "find_unused_parameters": True,
        "unused_bytes": 0,
        "iteration": 100,
        "post_forward_ns": MS,
    }
    for key, value in {**known, **facts}.items():
        if value is not None:
            loop.journal.fact(f"parallel/1/{key}", value)
    for _ in range(40):
        loop.compute()


def test_a_search_that_finds_nothing_is_found_at_the_models_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    train(loop)
    finding = find(rule)
    assert finding.share == pytest.approx(0.1, abs=0.01)
    assert str(finding.location) == "train.py:9"


@pytest.mark.parametrize(
    "facts",
    [
        {"find_unused_parameters": False},
        {"static_graph": True},
        {"unused_bytes": 4096},
        {"post_forward_ns": MS // 10},
    ],
)
def test_a_search_that_is_off_needed_or_cheap_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], facts: dict[str, object]
) -> None:
    train(loop, **facts)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize("missing", ["unused_bytes", "post_forward_ns", "iteration"])
def test_what_ddp_did_not_log_is_not_checked(loop: Any, ask: Callable[[Rule], Answer], missing: str) -> None:
    train(loop, **{missing: None})
    assert isinstance(ask(rule), NotChecked)

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.ranks import synchronised_accumulation as rule

MS = 1_000_000


def spread(loop: Any, exchange_ms: float | None = 3, world_size: int = 2) -> None:
    """Write a DDP model, and what its logger measured."""
    facts = {"kind": "DistributedDataParallel", "line": "train.py\x1f9\x1fmain", "world_size": world_size}
    if exchange_ms is not None:
        facts |= {
            "iteration": 100,
            "exchange_ns": round((exchange_ms + 2) * MS),
            "exchange_overlap_ns": 2 * MS,
        }
    for key, value in facts.items():
        loop.journal.fact(f"parallel/1/{key}", value)


def train(loop: Any, micro: int = 4, steps: int = 40, optimizers: int = 1) -> None:
    for _ in range(steps):
        for _ in range(micro):
            loop.span("forward", 4, "Net", 3, 21)
            loop.span("backward", 5, line=23)
        for number in range(optimizers):
            loop.span("optimizer", 4 / optimizers, f"SGD#{number + 1}", line=24 + number)


def test_exchanges_of_all_micro_batches_but_the_last_are_in_vain(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    spread(loop)
    train(loop)
    finding = find(rule)
    assert finding.share == pytest.approx(9 / 40, abs=0.01)
    assert str(finding.location) == "train.py:23"
    assert "4 micro-batches" in finding.sentence
    assert finding.verdict == "communication-bound"


def test_the_rank_that_waits_least_shows_what_an_exchange_takes(
    make_loop: Callable[..., Any], diagnosis: Callable[[], Any]
) -> None:
    loop = make_loop(rank=0)
    spread(loop, exchange_ms=9)
    train(loop)
    other = loop.run.journal(pid=101, opened=1_000 * MS, rank=1)
    loop.journal = other
    spread(loop, exchange_ms=1)
    train(loop)
    finding = next(one for one in diagnosis().findings if one.rule == "synchronised_accumulation")
    assert finding.share == pytest.approx(3 / 40, abs=0.01)


def test_no_sync_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    spread(loop)
    loop.journal.fact("no_sync/1/kind", "DistributedDataParallel")
    train(loop)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize(("micro", "optimizers"), [(1, 1), (2, 2)])
def test_one_backward_pass_for_each_optimizer_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], micro: int, optimizers: int
) -> None:
    spread(loop)
    train(loop, micro, optimizers=optimizers)
    assert isinstance(ask(rule), Clear)


def test_a_cheap_exchange_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    spread(loop, exchange_ms=0.1)
    train(loop)
    assert isinstance(ask(rule), Clear)


def test_one_process_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    spread(loop, world_size=1)
    train(loop)
    assert isinstance(ask(rule), Clear)


def test_without_what_ddp_measured_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    spread(loop, exchange_ms=None)
    train(loop)
    assert isinstance(ask(rule), NotChecked)

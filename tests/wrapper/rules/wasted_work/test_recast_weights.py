from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.wasted_work import recast_weights as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def micro_batches(step: Step, keeps: bool = False) -> None:
    cast = None
    losses = []
    for _ in range(3):
        if cast is None or not keeps:
            cast = step.call("_to_copy", step.old("weight"), line="net.py:8 forward")
        losses.append(step.call("mm", step.batch(), cast, line="net.py:8 forward"))
    step.train(step.call("stack", *losses))


def test_casts_of_the_same_weights_in_each_micro_batch_are_found(inspect: Inspect, find: Find) -> None:
    inspect(micro_batches)
    finding = find(rule)
    assert finding.share == pytest.approx(2 / 9, abs=0.01)
    assert str(finding.location) == "net.py:8"
    assert "A step repeats 2 casts of parameters" in finding.evidence[0]
    assert "torch.autocast once" in finding.advice


def test_one_cast_for_all_of_them_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: micro_batches(step, keeps=True))
    assert isinstance(ask(rule), Clear)


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."

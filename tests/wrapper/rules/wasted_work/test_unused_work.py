from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.wasted_work import unused_work as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def auxiliary(step: Step, used: bool = False) -> None:
    x = step.batch()
    other = step.call("mm", x, line=("net.py:5 auxiliary", "train.py:20 main"))
    if used:
        step.item(other)
    step.train(step.call("mm", x, step.old("weight"), line=21))


def test_a_call_whose_result_nothing_uses_is_found(inspect: Inspect, find: Find) -> None:
    inspect(auxiliary)
    finding = find(rule)
    assert finding.share == pytest.approx(1 / 4, abs=0.01)
    assert str(finding.location) == "train.py:20"
    assert "reach no parameter" in finding.evidence[0]
    assert "Remove the call" in finding.advice


def test_rows_that_nothing_reads_are_found(inspect: Inspect, find: Find) -> None:
    def body(step: Step) -> None:
        logits = step.call("addmm", step.batch(64, 128), step.old("head"), line=21, shape=(64, 128))
        step.train(step.call("mse_loss", step.view(logits, 1, 128, line=22), line=23))

    inspect(body)
    finding = find(rule)
    assert str(finding.location) == "train.py:21"
    assert "rows that nothing uses" in finding.title
    assert "only 1.6 % are read" in finding.evidence[0]


def test_what_the_host_reads_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: auxiliary(step, used=True))
    assert isinstance(ask(rule), Clear)


def test_with_gradients_from_elsewhere_it_is_not_checked(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: step.optimize(step.old("weight"), step.batch()))
    assert ask(rule) == NotChecked("An optimizer reads gradients that no recorded operation made.")


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."

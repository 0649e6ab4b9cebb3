from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.wasted_work import loop_of_small_operations as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def rows(step: Step, turns: int = 40) -> None:
    x = step.batch(64, 8)
    where = ("net.py:8 loss", "train.py:20 main")
    losses = [step.call("sum", step.view(x, 8, line=where, offset=8 * at), line=where) for at in range(turns)]
    step.train(step.call("stack", *losses, line="net.py:9 loss"))


def test_a_loop_over_rows_is_found(inspect: Inspect, find: Find) -> None:
    inspect(rows)
    finding = find(rule)
    assert finding.share == pytest.approx(0.9 * 80 / 83, abs=0.03)
    assert str(finding.location) == "net.py:8"
    assert "About 40 turns at net.py:8 call 40 select and 40 sum (80 operations" in finding.evidence[0]
    assert finding.evidence[1] == "Called from train.py:20."


def heads(step: Step) -> None:
    x = step.batch(8, 8)
    where = ("net.py:8 forward", "net.py:20 forward", "train.py:20 main")
    made = [step.call("mm", x, step.old(f"weight {number}"), line=where) for number in range(16)]
    step.backward()
    for result in made:
        step.optimize(step.old("weight"), step.gradient(result, result))


def test_modules_on_the_same_tensor_are_found(inspect: Inspect, find: Find) -> None:
    inspect(heads)
    finding = find(rule)
    assert "modules that are called one after the other on the same tensor, at net.py:8" in finding.sentence
    assert "mostly 16 at a time have equal shapes" in finding.evidence[0]
    assert finding.evidence[1] == "Called from net.py:20, train.py:20."
    assert "one module for all of them" in finding.advice


def test_few_turns_are_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: rows(step, turns=20))
    assert isinstance(ask(rule), Clear)


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."

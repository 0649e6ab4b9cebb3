from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.wasted_work import unchanging_work as rule

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def adjacency(step: Step, differs: bool = False) -> None:
    edges = step.old("edges")
    where = ("net.py:8 forward", "train.py:20 main")
    normal = step.call("div", edges, step.call("sum", edges, line=where, differs=differs), line=where)
    step.train(step.call("mm", normal, step.batch(), line=("net.py:9 forward", "train.py:20 main")))


def test_work_without_anything_that_changes_is_found(inspect: Inspect, find: Find) -> None:
    inspect(adjacency)
    finding = find(rule)
    assert finding.share == pytest.approx(2 / 5, abs=0.01)
    assert str(finding.location) == "net.py:8"
    assert finding.confidence == "measured"
    assert finding.saving[0] <= 3 / 5 + 0.01 <= finding.saving[1] + 0.02
    assert "2 operations of a step, at net.py:8, follow from nothing that changes" in finding.evidence[0]
    assert "register_buffer" in finding.advice


def test_values_of_python_that_are_converted_in_each_step_are_said(inspect: Inspect, find: Find) -> None:
    def body(step: Step) -> None:
        step.train(step.call("add", step.convert(line=11, ns=300_000), step.batch(), line=12))

    inspect(body)
    assert "from Python or NumPy values" in find(rule).title


def test_work_on_the_batch_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: step.train(step.call("mm", step.batch(), step.old("weight"))))
    assert isinstance(ask(rule), Clear)


def test_a_small_share_is_clear(inspect: Inspect, ask: Ask) -> None:
    def body(step: Step) -> None:
        mask = step.call("tril", step.old("ones"), ns=10_000)
        step.train(step.call("add", mask, step.batch(), ns=300_000))

    inspect(body)
    assert isinstance(ask(rule), Clear)


def test_without_recorded_operations_it_is_not_checked(why: Callable[..., str]) -> None:
    assert "perfwrap inspect" in why(rule)


def test_the_recorders_reason_is_why_it_is_not_checked(why: Callable[..., str]) -> None:
    assert why(rule, "no window: the program forked") == "Operations were not recorded: the program forked."

from __future__ import annotations

from collections.abc import Callable

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.wasted_work import materialised_broadcast, metrics_each_step

from tests.wrapper.drawn_windows import Draw, Step

Inspect = Callable[[Draw], None]
Find = Callable[[Rule], Finding]
Ask = Callable[[Rule], Answer]


def monitored(step: Step, copies: bool = False) -> None:
    loss = step.call("mm", step.old("data"), step.old("weight"), line=21)
    step.train(loss)
    x = step.old("noise", 256)
    made = step.call(
        "mm", x, step.old("weight"), shape=(256,), line=("monitor.py:8 score", "train.py:24 main")
    )
    if copies:
        made = step.call("repeat", made, shape=(256, 256), line=("monitor.py:9 score", "train.py:24 main"))
    step.item(step.call("sum", made, shape=(), line=("monitor.py:10 score", "train.py:24 main")))


def test_a_metric_of_every_step_is_found(inspect: Inspect, find: Find) -> None:
    inspect(monitored)
    finding = find(metrics_each_step)
    assert finding.share == pytest.approx(2 / 6, abs=0.02)
    assert str(finding.location) == "train.py:24"
    assert "reach no loss, no parameter" in finding.evidence[0]
    assert "only in some steps" in finding.advice


def test_what_makes_the_metric_cheaper_comes_first(inspect: Inspect, find: Find) -> None:
    inspect(lambda step: monitored(step, copies=True))
    assert find(materialised_broadcast).share == pytest.approx(2 / 7, abs=0.02)
    assert find(metrics_each_step).share == pytest.approx(1 / 7, abs=0.02)


def test_a_training_without_metrics_is_clear(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: step.train(step.call("mm", step.old("data"), step.old("weight"), line=21)))
    assert isinstance(ask(metrics_each_step), Clear)


def test_with_gradients_from_elsewhere_it_is_not_checked(inspect: Inspect, ask: Ask) -> None:
    inspect(lambda step: step.optimize(step.old("weight"), step.batch()))
    assert isinstance(ask(metrics_each_step), NotChecked)

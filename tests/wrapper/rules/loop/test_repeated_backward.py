from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.measures.account.what_if import best_without
from perfwrap.rules.loop import repeated_backward as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

KEEPS, ENDS = 31, 32


def write(
    loop: Any,
    between: str = "",
    models: int = 1,
    device: str = "cpu",
    keeps: bool = True,
    further: float = 4,
    clears: bool = True,
    again: bool = False,
    steps: int = 40,
) -> None:
    """Write steps of 20 ms and more: three backward passes of which the last and longest takes 6 ms."""
    loop.journal.fact("model/Net/class", "train.Net")
    loop.journal.fact("model/CrossEntropyLoss/autocast", False)
    loop.journal.fact("model/Net/device", device)
    loop.journal.fact("model/Net/dtype", "torch.float32")
    if keeps:
        loop.journal.fact("backward/1/line", f"train.py\x1f{KEEPS}\x1fmain")
        loop.journal.fact("backward/1/retain_graph", True)
    for _ in range(steps):
        if clears:
            loop.span("zero_grad", 0.1, "Optimizer.zero_grad", line=20)
        for _ in range(models):
            loop.span("forward", 5, "Net", 3, 21)
        for _ in range(2):
            with loop.journal.inside("backward", line=f"train.py:{KEEPS}:main"):
                if again:
                    loop.span("forward", 1, "Net", 3, 21)
                loop.python(further - again)
            if between == "CrossEntropyLoss":
                loop.span("forward", 0.1, between, 3, 30)
            elif between:
                loop.span(between, 0.1, "Net" if between == "forward" else "x", 3, 30)
        loop.span("backward", 6, line=ENDS)
        loop.span("optimizer", 1, "SGD#1", line=33)


def test_passes_over_one_graph_are_found_at_the_line_that_keeps_it(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    finding = find(rule)
    assert finding.share == pytest.approx(8 / 20, abs=0.02)
    assert str(finding.location) == f"train.py:{KEEPS}"
    assert finding.saving == pytest.approx((best_without(8 / 20), 1 - 6 / 20), abs=0.02)
    assert "3 consecutive backward passes" in finding.evidence[0]


def test_a_loss_function_between_them_does_not_matter(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, "CrossEntropyLoss")
    assert find(rule).share == pytest.approx(8 / 20, abs=0.02)


@pytest.mark.parametrize("between", ["forward", "zero_grad", "clip", "optimizer"])
def test_passes_with_something_between_them_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], between: str
) -> None:
    write(loop, between)
    assert isinstance(ask(rule), Clear)


def test_passes_that_keep_nothing_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, keeps=False)
    assert isinstance(ask(rule), Clear)


def test_one_pass_that_keeps_its_graph_for_nothing_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.journal.fact("backward/1/line", "train.py\x1f23\x1fmain")
    loop.journal.fact("backward/1/retain_graph", True)
    for _ in range(40):
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_short_passes_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, further=0.1)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize("models", [0, 2])
def test_where_the_losses_may_share_nothing_it_is_not_checked(
    loop: Any, ask: Callable[[Rule], Answer], models: int
) -> None:
    write(loop, models=models)
    assert isinstance(ask(rule), NotChecked)


def test_without_recorded_clearing_of_gradients_it_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, clears=False)
    assert isinstance(ask(rule), Clear)


def test_a_part_of_the_model_that_is_called_again_in_its_backward_pass_does_not_matter(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, again=True)
    assert find(rule).share == pytest.approx(8 / 20, abs=0.02)


def test_on_a_gpu_it_may_bring_nothing(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, device="cuda:0")
    assert find(rule).saving[1] == 1.0


def test_the_verdict_names_it_and_no_time_is_sold_twice(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop)
    found = diagnosis()
    assert found.findings[0].rule == "repeated_backward"
    assert f"train.py:{KEEPS}" in found.verdict.sentence
    assert sum(finding.share for finding in found.findings if not finding.informational) <= 1.0


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, steps=10)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["repeated_backward"]
    assert outcome.state == "not checked"

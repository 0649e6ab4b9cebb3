from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import GRAD, TRAINING
from perfwrap.rules.loop import slow_steps as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def test_what_comes_every_tenth_step_is_named_with_its_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(80):
        loop.compute()
        loop.python(60 if step % 10 == 9 else 0.1)
    finding = find(rule)
    assert finding.sentence.startswith("Every 10th step")
    assert str(finding.location) == "train.py:24"
    assert finding.share == pytest.approx(6 / 16, abs=0.04)


def test_its_time_is_not_sold_again_as_python(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for step in range(80):
        loop.compute()
        loop.python(60 if step % 10 == 9 else 0.1)
    assert [finding.rule for finding in diagnosis().findings] == ["slow_steps"]


def test_what_checkpoints_explain_is_reported_by_their_rule(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for step in range(80):
        loop.compute()
        if step % 10 == 9:
            loop.span("save", 60, "", -1, 40)
    result = diagnosis()
    outcomes = {outcome.rule: outcome for outcome in result.outcomes}
    assert [finding.rule for finding in result.findings] == ["checkpoint_stall"]
    assert "checkpoint_stall" in outcomes["slow_steps"].why


def test_steps_that_perfwrap_itself_made_slow_are_not_the_programs(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for step in range(80):
        loop.compute()
        if step in (40, 60):
            loop.span("perfwrap", 100, "window")
    answer = ask(rule)
    assert isinstance(answer, Clear)
    assert "profiler_cost" in answer.why


@pytest.mark.parametrize(("calls", "ms", "found"), [(20, 3, Clear), (1, 60, list)], ids=["rollout", "slow"])
def test_steps_that_call_the_model_more_often_are_work_of_the_training(
    loop: Any, ask: Callable[[Rule], Answer], calls: int, ms: float, found: type
) -> None:
    for step in range(80):
        loop.compute()
        for _ in range(calls if step % 10 == 9 else 0):
            loop.span("forward", ms, "Net", TRAINING | GRAD, 12)
            loop.span("sync", 0.01, "Tensor.numpy", 0, 13)
    assert isinstance(ask(rule), found)


def validate(loop: Any) -> None:
    loop.span("loader_start", 0.1, "loader/2", 0, 50)
    for _ in range(5):
        loop.span("data", 1, "loader/2", 32, 50)
        loop.span("forward", 3, "Net", 0, 51)
    loop.span("data_end", 0.1, "loader/2", 0, 50)


def test_a_short_validation_every_tenth_step_is_a_choice(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(80):
        loop.compute()
        if step % 10 == 9:
            validate(loop)
    answer = ask(rule)
    assert isinstance(answer, Clear)
    assert "validation_share" in answer.why


def test_other_slow_steps_are_found_beside_validation(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for step in range(120):
        loop.compute()
        if step % 10 == 9:
            validate(loop)
        loop.python(15 if step % 10 == 4 else 0.1)
    assert "the program's own code" in find(rule).sentence


def test_even_steps_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_irregular_slow_compute_is_what_a_shared_machine_does(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for step in range(80):
        loop.compute(backward=25 if step in (50, 53, 71) else 5)
    assert isinstance(ask(rule), Clear)


def test_too_few_steps_are_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for _ in range(8):
        loop.compute()
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["slow_steps"]
    assert outcome.state == "not checked"


def test_slow_python_among_as_much_slow_compute_is_noise_too(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for step in range(120):
        loop.compute(backward=45 if step in (50, 61, 97) else 5)
        loop.python(40 if step in (72, 90) else 0.1)
    assert isinstance(ask(rule), Clear)


def test_a_period_is_seen_among_accidents(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for step in range(120):
        loop.compute(backward=65 if step in (50, 61, 97) else 5)
        loop.python(60 if step % 10 == 9 else 0.1)
    assert find(rule).sentence.startswith("Every 10th step")


def test_a_rhythm_for_a_while_is_the_machines(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(120):
        loop.compute(backward=25 if 40 <= step < 60 and step % 2 else 5)
    assert isinstance(ask(rule), Clear)


def test_slow_compute_that_comes_regularly_gives_no_verdict(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for step in range(120):
        loop.compute(backward=60 if step % 10 == 9 else 5)
    result = diagnosis()
    found = next(finding for finding in result.findings if finding.rule == "slow_steps")
    assert "more time in backward" in found.sentence
    assert result.verdict.id == "unknown"
    assert found.sentence in result.verdict.sentence


def test_few_slow_steps_without_a_cause_in_the_program_are_reported_with_doubt(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(70):
        loop.compute(backward=60 if step % 10 == 9 else 5)
    finding = find(rule)
    assert "steps, perhaps every 10th, take up to" in finding.sentence
    assert finding.advice.endswith("Train longer first: so few slow steps may be chance.")


def test_a_rhythm_of_another_program_is_not_the_loops(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    slow = {7, 14, 21, 29, 36, 43, 51, 58, 65, 73, 80, 87, 95, 102, 109, 117}
    for step in range(120):
        loop.compute(backward=60 if step in slow else 5)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize("trains", [True, False])
def test_steps_that_train_something_of_their_own_are_a_choice(
    loop: Any, ask: Callable[[Rule], Answer], trains: bool
) -> None:
    # A generator that learns in every fifth step of its critic; or the same pass that takes longer each fifth time.
    for step in range(80):
        longer = 25 if step % 5 == 4 else 0.1
        if trains and step % 5 == 4:
            loop.span("forward", longer, "Generator", TRAINING | GRAD, 31)
            loop.span("backward", longer, line=32)
        loop.compute(4 if trains else 4 + longer)
    answer = ask(rule)
    if trains:
        assert isinstance(answer, Clear)
        assert "train something that the others do not" in answer.why
    else:
        (finding,) = answer  # type: ignore[misc]
        assert finding.sentence.startswith("Every 5th step")

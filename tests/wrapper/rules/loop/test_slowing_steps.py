"""Steps that grow with a growing stretch of Python are distinguished from all other causes of longer steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.account.what_if import best_without
from perfwrap.measures.loop import growing_lines
from perfwrap.rules import stack_samples as sampled
from perfwrap.rules.loop import slowing_steps as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

MS = 1_000_000
STEPS = 240


def test_a_stretch_that_grows_with_each_step_is_named(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        loop.python(0.05 * step)
    finding = find(rule)
    assert "from 20 ms to 32 ms" in finding.sentence
    assert str(finding.location) == "train.py:24"
    assert finding.share == pytest.approx(6 / 26, abs=0.02)
    # The code took no time at the beginning: nearly all of it is growth.
    assert finding.saving == pytest.approx((best_without(finding.share), 1 - 0.75 * finding.share), abs=0.02)
    assert "a step takes 43 ms after twice as many steps" in finding.evidence[-1]


def test_the_function_with_most_samples_of_the_stretch_is_named(
    loop: Any, find: Callable[[Rule], Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The samples in a journal are the recorder's own; here they are taken for py-spy's.
    monkeypatch.setattr(sampled, "OUTSIDE", "recorder")
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        loop.python(0.05 * step)
        label = FIELD_SEPARATOR.join(("", "train.py", "41", "main"))
        loop.journal.record(INSTANTS["STACK"], loop.journal.now, MS, 1, label, 1)
    finding = find(rule)
    assert str(finding.location) == "train.py:41"
    assert "mostly in main at train.py:41, works on something that grows" in finding.sentence
    assert "in main at train.py:41: limit it" in finding.advice
    assert "samples there were in main at train.py:41" in finding.evidence[1]


def test_what_the_stretch_feeds_is_named_and_claimed_with_it(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for step in range(STEPS):
        loop.span("forward", 8, "Net", 3, 21)
        loop.python(1 + 0.02 * step)
        loop.span("backward", 10 + 0.03 * step, line=23)
        loop.span("optimizer", 2, "SGD#1", line=24)
    result = diagnosis()
    first = result.findings[0]
    assert first.rule == "slowing_steps"
    assert "At the same time, backward got slower." in first.evidence
    assert first.share == pytest.approx(6 / 27, abs=0.02)
    assert "backward" in first.evidence[1] and len(result.findings) == 1


def test_the_rest_of_the_stretch_is_left_to_the_rule_about_python(
    loop: Any, diagnosis: Callable[[], Any]
) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        loop.python(20 + 0.1 * step)
    by_rule = {finding.rule: finding.share for finding in diagnosis().findings}
    assert by_rule["slowing_steps"] == pytest.approx(12 / 52, abs=0.03)
    assert by_rule["python_overhead"] == pytest.approx(20 / 52, abs=0.03)


def test_a_machine_that_slows_down_is_not_the_programs(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        slower = 1 + step / STEPS
        loop.compute(forward=8 * slower, backward=10 * slower, optimizer=2 * slower)
        loop.python(6 * slower)
    assert isinstance(ask(rule), Clear)


def test_longer_inputs_are_more_work(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        longer = 1 + step / STEPS
        loop.compute(forward=8 * longer, backward=10 * longer)
        loop.python(8 * longer)
    assert isinstance(ask(rule), Clear)


def test_more_rounds_are_more_work(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        for _ in range(2 + step // 40):
            loop.span("forward", 3, "Net", 3, 21)
            loop.python(2)
        loop.span("backward", 10, line=23)
        loop.span("optimizer", 2, "SGD#1", line=24)
    assert isinstance(ask(rule), Clear)


def test_what_levels_off_is_no_growth(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        loop.python(min(10, 0.2 * step))
    assert isinstance(ask(rule), Clear)


def test_a_jump_is_no_growth(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        loop.python((12 if step > STEPS // 2 else 2) + 0.002 * step)
    assert isinstance(ask(rule), Clear)


def test_what_grows_every_few_steps_is_named_with_its_times(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        loop.python(0.1 * step if step % 5 == 4 else 0.1)
    finding = find(rule)
    assert "takes longer each time, from 1.6 ms at step 20 to 23 ms at step 230" in finding.sentence
    assert str(finding.location) == "train.py:24"
    assert finding.share == pytest.approx(0.1, abs=0.015)
    assert "If this continues, it takes 44 ms after twice as many steps" in finding.evidence[-1]


def test_the_function_that_grows_every_few_steps_is_named_by_its_samples(
    loop: Any, find: Callable[[Rule], Finding], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampled, "OUTSIDE", "recorder")
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        loop.python(0.1 * step if step % 5 == 4 else 0.1)
        if step % 5 == 4:
            label = FIELD_SEPARATOR.join(("", "train.py", "41", "main"))
            loop.journal.record(INSTANTS["STACK"], loop.journal.now, MS, 1, label, 1)
    finding = find(rule)
    assert str(finding.location) == "train.py:41"
    assert "main at train.py:41 takes longer each time" in finding.sentence
    assert "samples there in the second half of the loop were in main at train.py:41" in finding.evidence[1]
    assert "at train.py:41: limit it, write only what is new" in finding.advice


def test_what_stays_the_same_every_few_steps_is_no_growth(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        loop.python(12 + step % 7 if step % 5 == 4 else 0.1)
    assert isinstance(ask(rule), Clear)


def test_small_growth_is_seen_beside_a_larger_drift_of_the_machine(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(STEPS):
        drift = 1 + 0.2 * (step // 30 % 2)
        loop.compute(forward=8 * drift, backward=10 * drift, optimizer=2 * drift)
        loop.python((0.1 + 0.01 * step) * drift)
    finding = find(rule)
    assert finding.share == pytest.approx(0.05, abs=0.01)
    assert str(finding.location) == "train.py:24"


def test_a_machine_that_gets_faster_does_not_make_the_rest_grow(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for step in range(STEPS):
        slow = 3 - 2 * step / STEPS
        loop.compute(forward=8 * slow, backward=10 * slow, optimizer=2 * slow)
        loop.python(6 + 0.01 * (step % 7))
    assert isinstance(ask(rule), Clear)


def test_a_history_in_each_checkpoint_is_named_and_claimed_before_the_checkpoints(
    loop: Any, diagnosis: Callable[[], Any]
) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        if step % 10 == 9:
            loop.span("save", 5 + 0.5 * step, "", 3 << 20, 40)
    by_rule = {finding.rule: finding for finding in diagnosis().findings}
    assert by_rule["slowing_steps"].sentence.startswith("torch.save at train.py:40 takes longer each time")
    assert by_rule["slowing_steps"].share == pytest.approx(60 / 265, abs=0.03)
    assert by_rule["checkpoint_stall"].share == pytest.approx(5 / 265, abs=0.03)


def validate(loop: Any, own: float, batches: int = 5, forward: float = 4) -> None:
    """Write a validation with the program's own code between its batches."""
    loop.span("loader_start", 0.1, "loader/2", 0, 50)
    for _ in range(batches):
        loop.span("data", 1, "loader/2", 32, 50)
        loop.span("forward", forward, "Net", 0, 51)
        loop.python(own / batches)
    loop.span("data_end", 0.1, "loader/2", 0, 50)


def test_what_grows_in_validations_is_named(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        if step % 10 == 9:
            validate(loop, own=0.4 * step)
    finding = find(rule)
    assert "takes longer each time" in finding.sentence
    assert "The program's own code in or after the validation at train.py:51" in finding.sentence
    assert str(finding.location) == "train.py:51"
    assert finding.share == pytest.approx(4.8 / 27.6, abs=0.03)


@pytest.mark.parametrize(("count", "is_named"), [(4, True), (1, False)])
def test_what_grows_in_validations_is_named_by_the_line_with_most_samples(
    loop: Any, ask: Callable[[Rule], Answer], monkeypatch: pytest.MonkeyPatch, count: int, is_named: bool
) -> None:
    monkeypatch.setattr(sampled, "OUTSIDE", "recorder")
    monkeypatch.setattr(growing_lines, "OUTSIDE", "recorder")
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        if step % 10 == 9:
            validate(loop, own=0.4 * step)
            if step > STEPS // 2:
                for line in (52, 53, 54):
                    label = FIELD_SEPARATOR.join(("", "train.py", str(line), "score"))
                    times = count if line == 53 else 1
                    loop.journal.record(INSTANTS["STACK"], loop.journal.now - MS, MS, times, label, 1)
    answer = ask(rule)
    if not is_named:
        assert isinstance(answer, Clear)
        return
    assert isinstance(answer, list)
    assert str(answer[0].location) == "train.py:53"
    assert "in score at train.py:53" in answer[0].evidence[1]


def test_validations_that_come_late_or_more_often_are_no_growth(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        if step > STEPS // 3 and step % (10 if step < STEPS // 2 else 5) == 4:
            validate(loop, own=12)
    assert isinstance(ask(rule), Clear)


def test_more_to_validate_is_no_growth(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        if step % 10 == 9:
            validate(loop, own=0.4 * step, batches=2 + step // 20)
    assert isinstance(ask(rule), Clear)


def test_the_longer_work_of_the_model_is_said(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        longer = 1 + step / STEPS
        loop.compute(forward=8 * longer, backward=10 * longer)
        loop.python(8 * longer**3 if step % 5 == 4 else 0)
    answer = ask(rule)
    assert isinstance(answer, Clear)
    assert "as long at the end as at the start (longer inputs" in answer.why


def test_a_cache_that_fills_is_no_growth(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        if step % 5 == 4:
            loop.python(max(2, 30 - 0.3 * step))
    assert isinstance(ask(rule), Clear)


def test_a_buffer_of_limited_size_is_no_growth(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(STEPS):
        loop.compute(forward=8, backward=10, optimizer=2)
        if step % 5 == 4:
            loop.python(min(20, 0.2 * step))
    assert isinstance(ask(rule), Clear)


def test_a_loop_of_a_second_or_two_says_nothing_of_growth(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for step in range(100):
        loop.compute()
        loop.python(0.02 * step)
    assert isinstance(ask(rule), Clear)

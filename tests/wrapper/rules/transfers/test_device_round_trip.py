from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FROM_GPU, TO_GPU
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.transfers import device_round_trip as rule


def write(
    loop: Any, back: int = 65536, away: int = 65536, every: int = 1, batch_between: bool = False
) -> None:
    for step in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        if step % every == 0:
            loop.span("transfer", 2, "Tensor.cpu", away << 8 | FROM_GPU, 30)
            loop.python(1)
            if batch_between:
                loop.batch(0.1)
            loop.span("transfer", 1, "Tensor.to", back << 8 | TO_GPU, 33)
        loop.span("backward", 5, line=23)
        loop.span("optimizer", 1, "SGD#1", line=24)


def test_there_and_back_in_a_step_is_found_with_both_lines(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    finding = find(rule)
    assert finding.share == pytest.approx(3 / 14, abs=0.01)
    assert "train.py:30" in finding.sentence
    assert "train.py:33" in finding.sentence
    assert str(finding.location) == "train.py:30"
    assert finding.saving[1] == 1.0


@pytest.mark.parametrize(
    "options", [{"back": 32768}, {"back": 64, "away": 64}, {"every": 4}, {"batch_between": True}]
)
def test_what_need_not_be_the_same_data_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], options: dict[str, Any]
) -> None:
    write(loop, **options)
    assert isinstance(ask(rule), Clear)


def test_a_batch_that_comes_first_is_no_round_trip(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.span("transfer", 2, "Tensor.to", 65536 << 8 | TO_GPU, 20)
        loop.span("forward", 4, "Net", 3, 21)
        loop.span("transfer", 2, "Tensor.cpu", 65536 << 8 | FROM_GPU, 22)
        loop.span("backward", 5, line=23)
        loop.span("optimizer", 1, "SGD#1", line=24)
    assert isinstance(ask(rule), Clear)


def test_on_a_cpu_nothing_is_said_of_a_gpu(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.journal.fact("model/Net/device", "cpu")
    for _ in range(40):
        loop.compute()
    assert ask(rule) == NotChecked("The model ran on the CPU.")


def test_where_the_device_is_not_known_nothing_is_said_of_it(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    for _ in range(40):
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop)
    journal = loop.journal
    journal.describe("COVERAGE", "probe/transfers", journal.text("it failed"), start=journal.now, duration=1)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["device_round_trip"]
    assert outcome.state == "not checked"

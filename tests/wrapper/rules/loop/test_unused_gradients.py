from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.loop import unused_gradients as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

TRAINED = 3
"""A call of a model in training mode, with gradients."""


def write(loop: Any, *reported: str, device: str = "cpu", python: float = 0) -> None:
    """Write steps of 10 ms of work, half of them the backward pass, and some of the program's own code."""
    loop.journal.fact("model/Net/device", device)
    for number, words in enumerate(reported):
        loop.journal.fact(f"model/Net{number or ''}/gradients", words)
    for _ in range(40):
        loop.compute(4, 5, 1)
        loop.python(python)


def test_gradients_of_a_frozen_part_are_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, "20 1000 12 700 encoder.stem.weight")
    finding = find(rule)
    assert finding.share == pytest.approx(0.5 * 0.6, abs=0.02)
    assert finding.saving == pytest.approx((1 - 0.5 * 0.9, 1 - 0.5 * 0.6 * 0.75), abs=0.02)
    assert "encoder.stem.weight of Net and 11 more" in finding.sentence
    assert "12 of 20 parameters with gradients (700 of 1,000 numbers)" in finding.evidence[0]


def test_a_teacher_counts_beside_what_is_trained(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, "20 1000 20 1000 layer.weight", "20 500 0 0 ")
    finding = find(rule)
    assert finding.share == pytest.approx(0.5 * 0.5, abs=0.02)
    assert str(finding.location) == "train.py:21"
    assert "or detach its result at train.py:21" in finding.advice


@pytest.mark.parametrize(
    ("reported", "python"),
    [
        ((), 0),
        (("20 1000 0 0 ",), 0),
        (("200 1000 5 700 a",), 0),
        (("20 1000 4 700 a",), 90),
        (("x 1 2 3 a",), 0),
    ],
)
def test_little_or_nothing_unused_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], reported: tuple[str, ...], python: float
) -> None:
    write(loop, *reported, python=python)
    assert isinstance(ask(rule), Clear)


def test_on_a_gpu_the_hosts_time_does_not_count(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "20 1000 12 700 encoder.stem.weight", device="cuda:0")
    assert isinstance(ask(rule), NotChecked)


def write_pair(loop: Any, thrown: str) -> None:
    """Write steps of two models, of which the first is called at two lines; 4 ms of backward passes."""
    for name in ("Maker", "Judge"):
        loop.journal.fact(f"model/{name}/device", "cpu")
    loop.journal.fact("optimizer/RMSprop#2/thrown", thrown)
    for _ in range(40):
        loop.span("forward", 4, "Maker", TRAINED, 31)
        loop.span("forward", 1, "Judge", TRAINED, 40)
        loop.span("backward", 4, line=23)
        loop.span("optimizer", 1, "RMSprop#2", line=24)


def test_gradients_that_are_cleared_unused_are_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write_pair(loop, "12 14 14 48 12 70 Maker")
    finding = find(rule)
    # All backward passes by its part of the forward passes, of which four of five are for nothing.
    assert finding.share == pytest.approx(0.4 * 0.8 * 0.8, abs=0.02)
    assert "gradients of Maker that are cleared" in finding.sentence
    assert "In 12 of 14 calls that clear gradients" in finding.evidence[0]
    assert "80 % of its backward passes are unneeded" in finding.evidence[1]
    assert finding.location is not None
    assert finding.location.line == 31


@pytest.mark.parametrize(
    "thrown",
    [
        "12 60 14 48 12 70 Maker",
        "12 14 14 12 12 14 Maker",
        "12 14 0 48 12 70 Maker",
        "12 14 14 0 12 70 Maker",
        "12 14 14 48 12 70 Maker#2",
        "twelve 14 14 48 12 70 Maker",
    ],
    ids=["seldom", "one call for each step", "no steps", "no passes", "another of its class", "damaged"],
)
def test_what_had_to_be_is_clear(loop: Any, ask: Callable[[Rule], Answer], thrown: str) -> None:
    write_pair(loop, thrown)
    assert isinstance(ask(rule), Clear)

"""The options of a finding: the best one is its advice, whatever a rule or the attribution of time does with them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.diagnosis.attribution import _reduced
from perfwrap.rules.model import Finding, Location, Option

ratios = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted).map(tuple)


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    """Return a finding with options in any order."""
    savings = draw(st.lists(ratios, min_size=1, max_size=6))
    options = [
        Option(f"Do {number}.", saving, experiment=f"workers={number}")
        for number, saving in enumerate(savings)
    ]
    return Finding("It costs.", draw(st.floats(0, 1)), (), tuple(options))


def check(finding: Finding) -> None:
    gains = [1 - sum(option.saving) / 2 for option in finding.options]
    assert gains == sorted(gains, reverse=True)
    best = finding.options[0]
    assert (finding.advice, finding.saving, finding.experiment) == (best.edit, best.saving, best.experiment)
    assert finding.gain <= max(gains) + 1e-12


@given(findings())
def test_options_are_in_the_order_of_their_gain_and_the_headline_is_the_first(finding: Finding) -> None:
    check(finding)


@given(findings(), st.floats(0, 1))
def test_they_are_in_order_too_where_another_rule_took_a_part_of_the_time(
    finding: Finding, lost: float
) -> None:
    reduced = _reduced(finding, lost, "another_rule")
    check(reduced)
    assert {option.edit for option in reduced.options} == {option.edit for option in finding.options}
    assert all(0 <= option.saving[0] <= option.saving[1] <= 1 for option in reduced.options)


def test_options_that_gain_the_same_stay_in_the_order_of_the_rule() -> None:
    options = (
        Option("First.", (0.5, 0.75)),
        Option("Second.", (0.25, 1.0)),
        Option("Third.", (0.625, 0.625)),
    )
    assert [option.edit for option in Finding("It costs.", 0.5, (), options).options] == [
        "First.",
        "Second.",
        "Third.",
    ]


def test_a_finding_without_an_option_is_a_bug() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Finding("It costs.", 0.5, (), ())


def test_details_follow_the_sentence() -> None:
    assert Option("Do it.", (0.5, 0.5), details="Then test it.").advice == "Do it. Then test it."
    assert Option("Do it.", (0.5, 0.5)).advice == "Do it."


def test_a_finding_is_at_the_line_of_its_best_option() -> None:
    loader, item = Location("train.py", 12), Location("data.py", 57)
    workers, cheaper = (
        Option("Pass num_workers=2.", (0.7, 0.8)),
        Option("Cheaper.", (0.2, 0.6), location=item),
    )
    found = Finding("Waits.", 0.5, (), (workers, cheaper), location=loader)
    assert (found.location, found.problem) == (item, loader)
    rest = replace(found, share=0.4)
    assert (rest.location, rest.problem) == (item, loader)
    other = Location("train.py", 99)
    moved = replace(Finding("Waits.", 0.5, (), (workers,), location=loader), location=other)
    assert (moved.location, moved.problem) == (other, other)

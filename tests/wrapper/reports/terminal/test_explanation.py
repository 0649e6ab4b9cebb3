from __future__ import annotations

import io

from perfwrap.reports.terminal import explanation
from perfwrap.reports.terminal.page import Page
from perfwrap.rules import RULES
from perfwrap.rules.loop import gc_pause
from perfwrap.rules.model import rule_id


def page() -> Page:
    return Page(io.StringIO(), 80)


def test_an_explanation_holds_every_heading_and_fits_the_terminal() -> None:
    drawn = page()
    explanation.draw("gc_pause", gc_pause, drawn)
    lines = drawn.text().splitlines()
    assert lines[0] == "gc_pause"
    assert [line for line in lines if line in explanation.HEADINGS] == list(explanation.HEADINGS)
    assert max(map(len, lines)) <= 80


def test_the_list_names_every_rule_once() -> None:
    drawn = page()
    explanation.draw_list({rule_id(rule): rule for rule in RULES}, drawn)
    first_words = [line.split()[0] for line in drawn.text().splitlines() if not line.startswith(" ")]
    assert first_words == [rule_id(rule) for rule in RULES]

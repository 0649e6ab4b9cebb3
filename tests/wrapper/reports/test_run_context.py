from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.measures.account.lines import Line
from perfwrap.measures.run.whole_run import EXIT, IMPORTS, LOOP, PARTS, Place, WholeRun
from perfwrap.reports.html.summary import verdict, whole_run
from perfwrap.reports.json import document

SECOND = 1_000_000_000


def test_the_whole_run_is_a_strip_whose_parts_add_up_to_a_hundred_per_cent(
    diagnosis: Diagnosis, drawn: Callable[..., str]
) -> None:
    parts = {**dict.fromkeys(PARTS, 0), IMPORTS: 3 * SECOND, LOOP: 8 * SECOND, EXIT: SECOND}
    places = (Place(IMPORTS, None, "torch", 2 * SECOND), Place(EXIT, Line("/w/a.py", 7), "", SECOND))
    run = {**diagnosis.run, "cwd": "/w"}
    divided = replace(diagnosis, whole_run=WholeRun(parts, places), run=run)
    text = drawn(divided, 80)
    expected = "Outside the loop, most time: importing torch 2 s, a.py:7 (exit) 1 s."
    assert "\nWhole run: 12 s\n  ░░░" in text
    assert "\n  imports 25 %, steady loop 67 %, exit 8 %.\n" in text
    assert expected in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    shown = whole_run(divided)
    assert shown is not None
    assert [(row["part"], row["share"]) for row in shown["parts"]] == [
        (IMPORTS, 25),
        (LOOP, 67),
        (EXIT, 8),
    ]
    assert shown["places"] == expected
    assert document(divided)["whole_run"]["parts_ns"][LOOP] == 8 * SECOND


def test_unknown_parts_are_not_shown(diagnosis: Diagnosis, drawn: Callable[..., str]) -> None:
    assert whole_run(diagnosis) is None
    assert document(diagnosis)["whole_run"] is None
    assert "Whole run" not in drawn(diagnosis)


def test_what_ends_a_step_is_shown_unless_it_is_the_optimizer(
    diagnosis: Diagnosis, drawn: Callable[..., str]
) -> None:
    for anchor, is_shown in (("optimizer step (SGD#1)", False), ("backward pass", True), ("", False)):
        ending = replace(diagnosis, steps=replace(diagnosis.steps, anchor=anchor))
        assert ("A step ends with each" in drawn(ending)) is is_shown
        assert verdict(ending)["ends_with"] == (anchor if is_shown else "")
    steps = replace(diagnosis.steps, anchor="optimizer step (SGD)")
    imported = replace(diagnosis, steps=steps, run={**diagnosis.run, "imported": {}})
    assert "A step ends with each optimizer step (SGD)." in drawn(imported)

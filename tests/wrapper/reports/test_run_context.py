from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.measures.account.lines import Line
from perfwrap.measures.host.processors import Processors
from perfwrap.measures.run.whole_run import EXIT, IMPORTS, LOOP, PARTS, Place, WholeRun
from perfwrap.reports.html.summary import verdict, whole_run
from perfwrap.reports.json import document
from perfwrap.reports.run_context import busy_machine

SECOND = 1_000_000_000
NONE: dict[str, None] = dict.fromkeys(
    ("usable", "allowed", "stolen", "runnable", "throttled_share", "wanted_threads")
    + ("threads_per_trainer", "threads_per_worker")
)


def machine(busy: float | None, own: float | None, switches: float | None = 150.0) -> Processors:
    """Return a machine of four cores."""
    return Processors(
        host="here",
        online=4,
        busy=busy,
        tree_busy=own,
        involuntary_switches_per_s=switches,
        trainers=1,
        workers=0,
        **NONE,
    )


def test_a_machine_without_a_free_core_gets_a_warning_before_the_verdict(
    diagnosis: Diagnosis, drawn: Callable[..., str]
) -> None:
    busy = replace(diagnosis, processors=machine(3.9, 2.4))
    text = " ".join(drawn(busy).split())
    warning = (
        "Busy machine: other programs used 1.5 of the machine's 4 cores and no core was free, so the step"
    )
    assert 0 < text.index(warning) < text.index(diagnosis.verdict.sentence)
    assert verdict(busy)["caution"] == busy_machine(busy)
    assert max(map(len, drawn(busy).splitlines())) <= 80


@pytest.mark.parametrize(
    "processors",
    [None, machine(None, None), machine(3.9, 3.8), machine(2.5, 1.0), machine(3.9, 2.4, switches=3.0)],
    ids=["not recorded", "not monitored", "own work", "free cores", "own cores"],
)
def test_a_machine_that_did_no_harm_gets_no_warning(
    diagnosis: Diagnosis, processors: Processors | None
) -> None:
    assert busy_machine(replace(diagnosis, processors=processors)) == ""


def test_the_whole_run_is_a_strip_whose_parts_add_up_to_a_hundred_per_cent(
    diagnosis: Diagnosis, drawn: Callable[..., str]
) -> None:
    parts = {**dict.fromkeys(PARTS, 0), IMPORTS: 3 * SECOND, LOOP: 8 * SECOND, EXIT: SECOND}
    places = (Place(IMPORTS, None, "torch", 2 * SECOND), Place(EXIT, Line("/w/a.py", 7), "", SECOND))
    run = {**diagnosis.run, "cwd": "/w"}
    divided = replace(diagnosis, whole_run=WholeRun(parts, places), run=run)
    text = drawn(divided, 80)
    told = "Outside the loop, most time: importing torch 2 s, a.py:7 (exit) 1 s."
    assert "\nWhole run: 12 s\n  ░░░" in text
    assert "\n  imports 25 %, steady loop 67 %, exit 8 %.\n" in text
    assert told in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    shown = whole_run(divided)
    assert shown is not None
    assert [(row["part"], row["share"]) for row in shown["parts"]] == [
        (IMPORTS, 25),
        (LOOP, 67),
        (EXIT, 8),
    ]
    assert shown["places"] == told
    assert document(divided)["whole_run"]["parts_ns"][LOOP] == 8 * SECOND


def test_unknown_parts_are_not_shown(diagnosis: Diagnosis, drawn: Callable[..., str]) -> None:
    assert whole_run(diagnosis) is None
    assert document(diagnosis)["whole_run"] is None
    assert "Whole run" not in drawn(diagnosis)

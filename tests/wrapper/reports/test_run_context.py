from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.measures.host.processors import Processors
from perfwrap.measures.run.whole_run import WholeRun
from perfwrap.reports.html.summary import verdict
from perfwrap.reports.run_context import busy_machine, whole_run

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


def test_the_parts_of_the_whole_run_add_up_to_a_hundred_per_cent_on_one_line(
    diagnosis: Diagnosis, drawn: Callable[..., str]
) -> None:
    divided = replace(diagnosis, whole_run=WholeRun(3 * SECOND, 8 * SECOND, SECOND))
    parts = "start 3 s (25 %), training loop 8 s (67 %), end 1 s (8 %)"
    assert f"\nWhole run: {parts}\n" in drawn(divided)
    assert {"name": "Whole run", "value": parts} in verdict(divided)["figures"]


def test_unknown_parts_are_not_shown(diagnosis: Diagnosis, drawn: Callable[..., str]) -> None:
    assert whole_run(diagnosis) == ""
    assert "Whole run" not in drawn(diagnosis)

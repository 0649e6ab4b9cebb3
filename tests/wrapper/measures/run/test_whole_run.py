from __future__ import annotations

from dataclasses import replace
from typing import Any

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.run.whole_run import WholeRun, find_whole_run
from perfwrap.timeline.model import Timeline

BEGIN, FINISH = {"monotonic_ns": 600, "wall_ns": 0}, {"monotonic_ns": 13_000, "wall_ns": 0}


def recorded(run: Any, steps: int = 100, **manifest: object) -> Timeline:
    """Return a run whose program needs 1,000 ns before its steps of 100 ns."""
    journal = run.journal(opened=1_000)
    journal.python(1_000)
    for _ in range(steps):
        journal.step()
    timeline: Timeline = run.read()
    return replace(timeline, run={**timeline.run, "start": BEGIN, "end": FINISH, **manifest})


def parts(timeline: Timeline) -> WholeRun | None:
    return Evidence(timeline).get(find_whole_run)


def test_the_parts_are_before_in_and_after_the_loop(run: Any) -> None:
    assert parts(recorded(run)) == WholeRun(start_ns=1_400, loop_ns=10_000, end_ns=1_000)


def test_without_steps_there_are_no_parts(run: Any) -> None:
    assert parts(recorded(run, steps=0)) is None


def test_a_run_whose_start_or_end_is_unknown_has_no_parts(run: Any) -> None:
    timeline = recorded(run)
    assert parts(replace(timeline, run={**timeline.run, "end": None})) is None
    assert parts(replace(timeline, run={**timeline.run, "start": None})) is None
    assert parts(replace(timeline, run={**timeline.run, "attached": {"pid": 7}})) is None


def test_steps_outside_the_time_of_the_command_give_no_parts(run: Any) -> None:
    assert parts(recorded(run, end={"monotonic_ns": 9_000, "wall_ns": 0})) is None


def test_loops_one_after_another_have_no_parts(run: Any) -> None:
    for pid, opened in ((100, 1_000), (200, 50_000)):
        journal = run.journal(pid, opened=opened)
        for _ in range(100):
            journal.step()
    timeline = run.read()
    whole = {**timeline.run, "start": BEGIN, "end": {"monotonic_ns": 90_000, "wall_ns": 0}}
    assert parts(replace(timeline, run=whole)) is None

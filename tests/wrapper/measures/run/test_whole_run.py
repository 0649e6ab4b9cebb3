from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.run.imports import STANDARD_LIBRARY, imported_package
from perfwrap.measures.run.whole_run import (
    BETWEEN,
    COMPILING,
    EXIT,
    FIRST_BATCH,
    IMPORTS,
    LAUNCH,
    LOOP,
    PARTS,
    SETUP,
    WARM_UP,
    WholeRun,
    find_whole_run,
)
from perfwrap.measures.trainers import find_trainers
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


def test_the_parts_add_up_to_the_run(run: Any) -> None:
    found = parts(recorded(run))
    assert found is not None
    assert found.total_ns == FINISH["monotonic_ns"] - BEGIN["monotonic_ns"]
    assert tuple(found.parts) == PARTS
    assert {part: ns for part, ns in found.parts.items() if ns} == {
        LAUNCH: 400,
        SETUP: 1_000,
        FIRST_BATCH: 10,
        LOOP: 9_990,
        EXIT: 1_000,
    }
    assert found.outside_ns == 2_410
    assert not found.places


def sample(run: Any, timeline: Timeline, rows: list[tuple[int, str, str | None, int | None]]) -> Timeline:
    """Return the timeline with py-spy's samples of the training thread: time, stack, file and line."""
    (trainer,) = Evidence(timeline).get(find_trainers)
    stacks = pl.DataFrame(
        [
            {
                **dict.fromkeys(timeline.stacks.columns),
                "time": time,
                "track": trainer.thread,
                "weight": 1,
                "stack": stack,
                "file": file,
                "line": line,
                "function": "main",
                "source": "py-spy",
            }
            for time, stack, file, line in rows
        ],
        schema=timeline.stacks.schema,
    )
    return replace(timeline, stacks=stacks)


TRAIN = "<module> (train.py:5)"
IMPORTING = f"{TRAIN};_find_and_load (<frozen importlib._bootstrap>:1176);<module> (/lib/python3.11/{{}}:3)"


def test_samples_tell_imports_from_the_program_s_own_setup(run: Any) -> None:
    timeline = recorded(run)
    rows = [
        (1_100, IMPORTING.format("site-packages/torch/__init__.py"), "train.py", 5),
        (1_400, IMPORTING.format("json/__init__.py"), "train.py", 6),
        (1_500, TRAIN, "train.py", 9),
    ]
    found = parts(sample(run, timeline, rows))
    assert found is not None
    assert found.imports == (("torch", 300), (STANDARD_LIBRARY, 100))
    assert (found.parts[IMPORTS], found.parts[SETUP]) == (400, 600)
    assert found.total_ns == FINISH["monotonic_ns"] - BEGIN["monotonic_ns"]


def test_the_costliest_places_outside_the_loop_are_named(run: Any) -> None:
    timeline = recorded(run)
    rows = [
        (1_000, TRAIN, "train.py", 9),
        (11_900, TRAIN, "train.py", 30),
        (12_000, TRAIN, "train.py", 40),
    ]
    found = parts(sample(run, timeline, rows))
    assert found is not None
    assert [(place.part, place.where, place.ns) for place in found.places] == [
        (EXIT, Line("train.py", 40, "main"), 1_000),
        (SETUP, Line("train.py", 9, "main"), 1_000),
    ]


def test_a_line_of_the_loop_is_no_place_of_the_exit(run: Any) -> None:
    found = parts(sample(run, recorded(run), [(11_900, TRAIN, "train.py", 30)]))
    assert found is not None
    assert not found.places


def test_slow_first_steps_are_a_slow_warm_up(run: Any) -> None:
    journal = run.journal(opened=1_000)
    for number in range(100):
        if number in (1, 2):
            journal.span("backward", 2_500)
        journal.step()
    timeline = run.read()
    end = {"monotonic_ns": 18_000, "wall_ns": 0}
    found = parts(replace(timeline, run={**timeline.run, "start": BEGIN, "end": end}))
    assert found is not None
    # Three warm-up steps: ordinary ones would take 100 ns each, and each waits 10 ns for its batch.
    assert found.slow_warm_up_ns == found.parts[WARM_UP] - 300 - 30 == 4_960


def test_waits_for_data_in_the_warm_up_are_not_a_slow_warm_up(run: Any) -> None:
    journal = run.journal(opened=1_000)
    for number in range(100):
        if number in (1, 2):
            journal.data(2_500)
        journal.step()
    timeline = run.read()
    end = {"monotonic_ns": 18_000, "wall_ns": 0}
    found = parts(replace(timeline, run={**timeline.run, "start": BEGIN, "end": end}))
    assert found is not None
    assert found.parts[WARM_UP] > 5_000
    assert found.slow_warm_up_ns == 0


def test_compiling_in_the_steady_loop_is_part_of_the_loop(run: Any) -> None:
    journal = run.journal(opened=1_000)
    journal.span("compile", 500, "forward")
    for number in range(100):
        if number == 80:
            journal.span("compile", 200, "forward")
        journal.step()
    timeline = run.read()
    end = {"monotonic_ns": 13_000, "wall_ns": 0}
    found = parts(replace(timeline, run={**timeline.run, "start": BEGIN, "end": end}))
    assert found is not None
    assert (found.parts[COMPILING], found.compiling_in_loop_ns, found.start_compiling_ns) == (700, 200, 500)


@pytest.mark.parametrize(
    ("stack", "package"),
    [
        (TRAIN, None),
        (IMPORTING.format("site-packages/torch/__init__.py"), "torch"),
        (IMPORTING.format("site-packages/six.py"), "six"),
        (IMPORTING.format("json/__init__.py"), STANDARD_LIBRARY),
        (f"{TRAIN};_find_and_load (<frozen importlib._bootstrap>:1176)", STANDARD_LIBRARY),
        (
            f"{TRAIN};_find_and_load (<frozen importlib._bootstrap>:1);<module> (own.py:1);train (own.py:9)",
            None,
        ),
    ],
)
def test_the_imported_package_is_the_outermost_installed_one(stack: str, package: str | None) -> None:
    assert imported_package(stack) == package


def test_the_time_between_two_trainings_is_its_own_part(run: Any) -> None:
    journal = run.journal(opened=1_000)
    for name in ("Adam#1", "Adam#2"):
        journal.python(1_000)
        for _ in range(50):
            journal.step(name)
    timeline = run.read()
    end = {"monotonic_ns": 14_000, "wall_ns": 0}
    found = parts(replace(timeline, run={**timeline.run, "start": BEGIN, "end": end}))
    assert found is not None
    assert found.parts[BETWEEN] == 1_000
    assert found.parts[LOOP] == 9_990


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

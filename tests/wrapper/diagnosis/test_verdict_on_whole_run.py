"""The verdict when most of a run is outside its training loop."""

from __future__ import annotations

import pytest
from perfwrap.diagnosis.model import Verdict
from perfwrap.diagnosis.verdict import on_whole_run
from perfwrap.measures.run.whole_run import AFTER, COMPILING, IMPORTS, LOOP, PARTS, SETUP, WARM_UP, WholeRun

SECOND = 1_000_000_000
LOOP_VERDICT = Verdict(
    "data-bound", 0.4, "Data-bound: 40 % of the training loop waits for batches.", "measured"
)


def whole_run(
    seconds: dict[str, int],
    packages: dict[str, int] | None = None,
    compiled_in_loop: int = 0,
    slow_warm_up: int = 0,
) -> WholeRun:
    """Return a run with so many seconds in each part, and in the import of each package."""
    parts = {part: seconds.get(part, 0) * SECOND for part in PARTS}
    imports = tuple((name, value * SECOND) for name, value in (packages or {}).items())
    return WholeRun(parts, (), imports, compiled_in_loop * SECOND, slow_warm_up * SECOND)


@pytest.mark.parametrize(
    ("run", "kind"),
    [
        (whole_run({SETUP: 12, LOOP: 8}), "start-up-bound"),
        (whole_run({COMPILING: 12, LOOP: 8}), "start-up-bound"),
        (whole_run({SETUP: 2, AFTER: 10, LOOP: 8}), "outside-loop-bound"),
        (whole_run({IMPORTS: 8, LOOP: 4}, {"transformers": 6, "torch": 2}), "start-up-bound"),
        (whole_run({IMPORTS: 12, LOOP: 2}, {"torch": 12}), "data-bound"),
        (whole_run({SETUP: 9, LOOP: 11}), "data-bound"),
        (whole_run({SETUP: 4, LOOP: 1}), "data-bound"),
        (whole_run({COMPILING: 12, LOOP: 8}, compiled_in_loop=10), "data-bound"),
        (whole_run({WARM_UP: 12, LOOP: 8}, slow_warm_up=11), "start-up-bound"),
        (whole_run({WARM_UP: 12, LOOP: 8}, slow_warm_up=4), "data-bound"),
    ],
)
def test_it_says_so_if_the_program_itself_spends_most_of_the_run_outside(run: WholeRun, kind: str) -> None:
    assert on_whole_run(run, LOOP_VERDICT).id == kind


def test_it_names_the_two_largest_parts_and_goes_on_with_the_loop() -> None:
    run = whole_run({SETUP: 6, COMPILING: 12, LOOP: 6}, compiled_in_loop=2)
    assert on_whole_run(run, LOOP_VERDICT).sentence == (
        "Start-up-bound: 67 % of the run of 24 s is before the first training step (compiling 10 s, setup 6 s). In the "
        "training loop: Data-bound: 40 % of the training loop waits for batches."
    )


def test_slow_warm_up_steps_are_named_as_such() -> None:
    run = whole_run({IMPORTS: 6, WARM_UP: 10, LOOP: 4}, {"torch": 6}, slow_warm_up=9)
    assert (
        "before the steady training loop (warm-up 9 s, imports 6 s)."
        in on_whole_run(run, LOOP_VERDICT).sentence
    )


def test_a_run_without_parts_has_the_verdict_of_its_loop() -> None:
    assert on_whole_run(None, LOOP_VERDICT) is LOOP_VERDICT


@pytest.mark.parametrize(("imports", "found"), [(12, True), (4, False)])
def test_a_run_bound_by_its_warm_up_is_not_bound_before_its_steps(imports: int, found: bool) -> None:
    run = whole_run({IMPORTS: imports, WARM_UP: 10, LOOP: 4}, {"torch": imports}, slow_warm_up=9)
    assert run.is_bound_by_start
    assert run.is_bound_before_steps is found

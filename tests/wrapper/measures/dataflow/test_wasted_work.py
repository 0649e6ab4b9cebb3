from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow import wasted_work
from perfwrap.measures.dataflow.dataflow import find_dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.measures.dataflow.wasted_work import (
    FROZEN,
    KINDS,
    METRICS,
    MIN_SHARE,
    REPEATED,
    UNCHANGING,
    UNUSED,
    WEIGHTS,
    WastedWork,
    find_wasted_work,
    why_no_window,
)
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.model_loops import find_any_loop, find_model_loop
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.timeline.coverage import DATAFLOW
from perfwrap.timeline.model import Timeline
from perfwrap.timeline.operation_window import BACKWARD, RECOMPUTE, Frame

from tests.wrapper.drawn_windows import Draw, Step, add_windows

Run = Any


@pytest.fixture
def timeline(run: Run) -> Timeline:
    """A loop whose steps take as long as ten drawn operations: 1 ms."""
    journal = run.journal(opened=1_000_000_000)
    for _ in range(40):
        journal.forward(500_000)
        journal.backward(400_000)
        journal.optimizer(100_000)
    return run.read()  # type: ignore[no-any-return]


def find(timeline: Timeline, body: Draw) -> WastedWork:
    evidence = Evidence(add_windows(timeline, body))
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    work = evidence.get(find_wasted_work, trainer)
    assert work is not None
    return work


def kinds(work: WastedWork) -> dict[str, float]:
    return {kind: sum(waste.share for waste in wastes) for kind, wastes in work.wastes.items() if wastes}


def test_each_operation_is_wasted_once(timeline: Timeline) -> None:
    def body(step: Step) -> None:
        x = step.batch()
        one = step.call("mm", x, step.old("weight"), line=20)
        step.call("relu", step.call("mm", x, step.old("weight"), line=21), line=21)  # repeated and unused
        for line in (22, 23):
            one = step.call("add", one, step.call("tril", step.old("ones"), line=line), line=24)
        step.train(one)

    work = find(timeline, body)
    assert kinds(work) == {UNCHANGING: pytest.approx(2 / 9), UNUSED: pytest.approx(2 / 9)}
    numbers = [number for wastes in work.wastes.values() for waste in wastes for number in waste.operations]
    assert len(numbers) == len(set(numbers)) == 4


def test_the_larger_of_two_wastes_keeps_what_both_have(timeline: Timeline) -> None:
    def body(step: Step) -> None:
        x = step.batch()
        one = step.call("mm", x, step.old("weight"), line=20)
        two = step.call("mm", x, step.old("weight"), line=21)
        hidden = step.call("add", one, two, line=22)
        step.backward()
        step.gradient(one, hidden)
        step.accumulate("weight.grad", step.gradient(two, hidden))
        step.clear("weight.grad")
        step.optimize(step.old("weight"), step.gradient(hidden, hidden, name="sum"))

    work = find(timeline, body)
    (repeated,) = work.wastes[REPEATED]
    (unused,) = work.wastes[WEIGHTS]
    assert not set(unused.operations) & set(repeated.operations)
    assert (repeated.share, unused.share) == pytest.approx((1 / 9, 3 / 9))


def test_small_wastes_are_dropped(timeline: Timeline) -> None:
    def body(step: Step, ns: int = 100) -> None:
        step.call("sin", step.batch(), ns=ns)
        step.train(step.batch())

    assert MIN_SHARE == 0.01
    assert kinds(find(timeline, body)) == {}
    assert UNUSED in kinds(find(timeline, lambda step: body(step, 10_000)))


def test_kinds_that_need_the_gradients_are_unknown_if_they_were_not_seen(timeline: Timeline) -> None:
    def body(step: Step) -> None:
        step.call("sin", step.batch())
        step.optimize(step.old("weight"), step.batch())

    work = find(timeline, body)
    assert set(work.unknown) == {UNUSED, FROZEN, WEIGHTS, METRICS}
    assert kinds(work) == {}
    assert set(work.wastes) == set(KINDS)


def test_a_usual_step_is_all_of_a_loop_of_equal_steps(timeline: Timeline) -> None:
    def body(step: Step) -> None:
        for _ in range(5):
            step.call("mm", step.batch())

    assert find(timeline, body).loop_share == pytest.approx(1.0)


@pytest.mark.parametrize(("parameters", "share"), [(("4", "4"), 1.0), (("4", "9"), 0.5)])
def test_another_training_counts_if_its_optimizers_are_alike(
    run: Run, parameters: tuple[str, str], share: float
) -> None:
    journal = run.journal(opened=1_000_000_000)
    for number, count in enumerate(parameters, start=1):
        journal.fact(f"optimizer/Adam#{number}/parameters", count)
        journal.python(10_000)
        for _ in range(40):
            journal.forward(500_000)
            journal.backward(400_000)
            journal.optimizer(100_000, name=f"Adam#{number}")

    def body(step: Step) -> None:
        for _ in range(10):
            step.call("mm", step.batch())

    timeline = run.read()
    drawn = add_windows(timeline, body)
    begun = timeline.spans["start"][30]
    moved = [msgspec.structs.replace(window, opened=begun) for window in drawn.operation_windows]
    evidence = Evidence(replace(drawn, operation_windows=tuple(moved)))
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    work = evidence.get(find_wasted_work, trainer)
    assert work is not None
    assert work.loop_share == pytest.approx(share, abs=0.03)


def test_what_checkpointing_computes_again_is_known(timeline: Timeline) -> None:
    def body(step: Step) -> None:
        hidden = step.call("mm", step.batch(), step.old("weight"))
        step.backward()
        again = step.call("mm", step.batch(), step.old("weight"), flags=BACKWARD | RECOMPUTE)
        step.optimize(step.old("weight"), step.gradient(hidden, again))

    assert find(timeline, body).recomputed_share == pytest.approx(1 / 4)


def test_windows_of_another_thread_are_not_those_of_the_trainer(timeline: Timeline) -> None:
    evidence = Evidence(add_windows(timeline, lambda step: step.train(step.batch()), thread=77))
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    assert evidence.get(find_dataflow, trainer) is None
    assert evidence.get(find_wasted_work, trainer) is None
    assert why_no_window(evidence, trainer) == "The recorded operations are those of another thread."


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ((), "Needs the operations of some steps; use `perfwrap inspect`."),
        (
            ("no window: another dispatch mode is active",),
            "Operations were not recorded: another dispatch mode is active.",
        ),
        (
            ("window given up: the program forked", "no window: the steps are too long"),
            "Operations were not recorded: the steps are too long.",
        ),
        (
            ("operations of steps 13 to 15: tools/operations-here-1-0.json",),
            "Operations were recorded, but their file cannot be read.",
        ),
    ],
)
def test_why_there_is_no_window_is_said(run: Run, notes: tuple[str, ...], why: str) -> None:
    journal = run.journal(opened=1_000)
    for note in notes:
        journal.describe("COVERAGE", DATAFLOW, journal.text(note), duration=1)
        journal.python(10)
    for _ in range(40):
        journal.step()
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    assert why_no_window(evidence, trainer) == why
    found = Evidence(add_windows(evidence.timeline, lambda step: step.train(step.batch())))
    assert why_no_window(found, trainer) is None


@pytest.mark.parametrize(("in_recurrence", "first"), [(True, 56), (False, 77)])
def test_a_recurrence_is_at_its_own_loop_and_not_at_one_that_calls_it(
    in_recurrence: bool, first: int
) -> None:
    frames = [Frame("net.py", 56, "states", False), Frame("net.py", 77, "forward", False)]
    flow: Any = SimpleNamespace(stack=lambda number: frames, cost=lambda number: 1.0)
    loops = {(find_any_loop, 56): 50, (find_any_loop, 77): 76, (find_model_loop, 77): 76}
    evidence: Any = SimpleNamespace(get=lambda find, trainer, line: loops.get((find, line.line)))
    trainer: Any = None
    waste = Waste((1,), 0.5, (Line("net.py", 56, "states"),), (), in_recurrence=in_recurrence)
    assert wasted_work._at_loop(evidence, trainer, flow, waste).lines[0].line == first

from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.small_loops import find_small_loops
from perfwrap.measures.dataflow.waste import Waste

from tests.wrapper.drawn_windows import Draw, Step, draw_flow


def find(body: Draw) -> list[Waste]:
    return find_small_loops(draw_flow(body), frozenset())


def rows(step: Step, turns: int = 40, ns: int = 100_000, same: bool = False) -> None:
    x = step.batch(64, 8)
    losses = []
    for turn in range(turns):
        row = step.view(x, 8, line=("net.py:7 loss", "train.py:20 main"), offset=0 if same else 8 * turn)
        losses.append(step.call("sum", row, line=("net.py:8 loss", "train.py:20 main"), shape=(), ns=ns))
    step.train(step.call("stack", *losses, line="net.py:9 loss"))


def test_a_loop_over_the_rows_of_a_tensor_is_found() -> None:
    (waste,) = find(rows)
    assert waste.count == 40
    assert dict(waste.names) == {"select": 40, "sum": 40}
    assert {line.line for line in waste.lines} == {7, 8}
    assert [line.line for line in waste.callers] == [20]
    assert waste.share == pytest.approx(0.9 * 80 / 83 * 39 / 40)


@pytest.mark.parametrize(("module", "count"), [("net.layer", 1), ("net.gru", 0)])
def test_what_one_call_of_a_recurrent_module_does_is_no_loop_of_the_program(module: str, count: int) -> None:
    def body(step: Step) -> None:
        x = step.batch(64, 8)
        parts = [
            step.call("sum", step.view(x, 8, line=7, offset=8 * turn, module=module), line=7, module=module)
            for turn in range(40)
        ]
        step.train(step.call("stack", *parts, line=7, module=module))

    assert len(find(body)) == count


def test_the_backward_of_a_loop_is_part_of_it() -> None:
    def body(step: Step) -> None:
        x = step.batch(64, 8)
        losses = [
            step.call("sum", step.view(x, 8, line=7, offset=8 * turn), line=8, shape=()) for turn in range(40)
        ]
        step.backward()
        for loss in losses:
            step.optimize(step.old("weight"), step.gradient(loss, loss, name="expand_backward"))

    (waste,) = find(body)
    assert len(waste.operations) == 120


def test_few_turns_are_clear() -> None:
    assert find(lambda step: rows(step, turns=31)) == []


def test_large_operations_gain_little() -> None:
    assert find(lambda step: rows(step, ns=500_000)) == []


def test_calls_on_the_same_part_are_no_loop_over_parts() -> None:
    assert find(lambda step: rows(step, same=True)) == []


def test_a_recurrence_needs_one_turn_after_the_other() -> None:
    def body(step: Step) -> None:
        x, state = step.batch(64, 8), step.call("zeros", line=5)
        for turn in range(40):
            row = step.view(x, 8, line=7, offset=8 * turn)
            state = step.call("addmm", state, row, line=8)
            state = step.call("tanh", state, line=9)
        step.train(state)

    assert find(body) == []


@pytest.mark.parametrize(
    ("name", "reads_before", "count"),
    [("fill_", False, 1), ("copy_", False, 1), ("copy_", True, 0), ("add_", False, 0)],
)
def test_turns_that_write_rows_of_one_tensor_are_free_unless_they_read_those_before(
    name: str, reads_before: bool, count: int
) -> None:
    def body(step: Step) -> None:
        out = step.call("clone", step.batch(64, 8), line=5, shape=(64, 8))
        for turn in range(40):
            row = step.view(out, 8, line=7, offset=8 * turn)
            before = (step.view(out, 8, line=7, offset=8 * turn - 8),) if reads_before else ()
            step.call(name, *before, into=row, of_part=True, line=8)
        step.train(step.call("sum", out, line=9))

    assert len(find(body)) == count


def test_what_a_recurrence_could_compute_before_it_is_found_alone() -> None:
    def body(step: Step) -> None:
        x, state = step.batch(64, 8), step.call("zeros", line=5)
        for turn in range(40):
            row = step.call("index", step.view(x, 8, line=7, offset=8 * turn), line=7)
            state = step.call("logsumexp", step.call("add", state, row, line=8), line=9)
        step.train(state)

    (waste,) = find(body)
    assert waste.in_recurrence
    assert {line.line for line in waste.lines} == {7}


def test_work_in_turns_beside_a_sum_of_them_is_no_recurrence() -> None:
    def body(step: Step) -> None:
        x, total = step.batch(64, 8), step.call("zeros", line=5, shape=())
        for turn in range(40):
            row = step.view(x, 8, line=7, offset=8 * turn)
            error = step.call("sum", step.call("square", row, line=7), line=7, shape=())
            total = step.call("add", total, error, line=8, shape=())
        step.train(total)

    (waste,) = find(body)
    assert waste.count == 40


def test_calls_that_follow_from_each_other_in_one_turn_are_no_recurrence() -> None:
    def body(step: Step) -> None:
        x, total = step.batch(64, 8), step.call("zeros", line=5, shape=())
        for turn in range(40):
            place = step.call("index", step.view(x, 8, line=7, offset=8 * turn), line=7)
            pairs = step.call("index", step.call("index", place, line=7), line=7)
            total = step.call("add_", step.call("sum", pairs, line=8, shape=()), into=total, line=9, ns=1000)
        step.train(total)

    (waste,) = find(body)
    assert not waste.in_recurrence
    assert dict(waste.names)["index"] == 120


def test_many_short_recurrences_are_no_free_turns() -> None:
    def body(step: Step) -> None:
        x, states = step.batch(64, 8), []
        for turn in range(40):
            if turn % 4 == 0:
                state = step.call("zeros", line=5)
                states.append(state)
            state = step.call(
                "tanh", step.call("add", state, step.view(x, 8, line=7, offset=8 * turn), line=8), line=9
            )
            states[-1] = state
        step.train(step.call("stack", *states, line=10))

    assert find(body) == []


@pytest.mark.parametrize(("line", "is_part"), [(8, True), (20, False)])
def test_what_a_line_of_the_loop_calls_in_each_turn_is_part_of_it(line: int, is_part: bool) -> None:
    def body(step: Step) -> None:
        x, total = step.batch(64, 8), step.call("zeros", line=5, shape=())
        for turn in range(40):
            row = step.call("index", step.view(x, 8, line=7, offset=8 * turn), line=7)
            loss = step.call("exp", row, line=("loss.py:3 pair", f"train.py:{line} main"), ns=80_000)
            total = step.call("add_", loss, into=total, line=9, ns=1000)
        step.train(total)

    (waste,) = find(body)
    assert waste.lines[0].line == 7
    assert ("exp" in dict(waste.names)) == is_part
    assert waste.count == 40


def test_what_is_unchanging_as_a_whole_is_left_to_that_kind() -> None:
    flow = draw_flow(rows)
    assert find_small_loops(flow, frozenset(flow.step)) == []

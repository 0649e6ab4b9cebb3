from __future__ import annotations

import pytest
from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.dataflow import MAX_GAP_NS
from perfwrap.measures.dataflow.line_account import LineAccount, LineCost, account_of
from perfwrap.timeline.operation_window import DATA

from tests.wrapper.drawn_windows import TOOK, Draw, Step, draw_flow

MS = 1_000_000


def account(body: Draw) -> LineAccount:
    return account_of(draw_flow(body))


def at(account: LineAccount, line: int) -> LineCost:
    (cost,) = [cost for cost in account.lines if cost.line.line == line]
    return cost


def training(step: Step) -> None:
    batch = step.call("stack", step.batch(), flags=DATA, line=19)
    hidden = step.call(
        "mm", batch, line=("lib/linear.py:134 forward", "net.py:8 forward", "train.py:20 main")
    )
    loss = step.call("mse_loss", hidden, line=21, gap=3 * MS, shape=())
    step.backward(line=30)
    gradient = step.gradient(hidden, step.gradient(loss, loss))
    step.optimize(step.old("weight"), gradient, line=("lib/adam.py:99 step", "train.py:40 main"))
    step.item(loss, line=41)


def test_all_of_the_step_belongs_to_a_line() -> None:
    found = account(training)
    assert sum(cost.ns for cost in found.lines) == pytest.approx(found.step_ns)
    assert sum(found.share(cost) for cost in found.lines) == pytest.approx(1)
    assert sum(found.stacks.values()) == pytest.approx(found.step_ns)


def test_lines_are_those_of_the_program_the_most_expensive_first() -> None:
    assert [cost.line.line for cost in account(training).lines][:2] == [21, 8]
    assert {cost.line.line for cost in account(training).lines} == {19, 8, 21, 40, 41}


def test_backward_is_at_the_line_of_its_forward_operation() -> None:
    found = account(training)
    assert at(found, 8).parts == {
        "forward": TOOK,
        "backward": TOOK,
        "optimizer": 0,
        "python": 0,
        "data": 0,
    }
    assert at(found, 40).parts["optimizer"] == TOOK
    assert at(found, 19).parts["data"] == TOOK


def test_a_long_gap_is_python_at_the_line_after_it() -> None:
    assert at(account(training), 21).parts["python"] == pytest.approx(3 * MS - MAX_GAP_NS, rel=0.01)


def test_time_in_a_gap_in_which_the_thread_waited_for_data_is_a_part_of_its_own() -> None:
    flow = draw_flow(training)
    operation = flow.operations[flow.first + 2]
    end = flow.window.opened + operation.start
    found = account_of(flow, [(end - 2 * MS, end - MS), (end, end + 9 * MS), (0, 10)])
    parts = at(found, 21).parts
    assert parts["data"] == MS
    assert parts["python"] == pytest.approx(2 * MS - MAX_GAP_NS, rel=0.01)
    assert sum(cost.ns for cost in found.lines) == pytest.approx(found.step_ns)


def test_waits_for_data_belong_to_the_lines_that_were_sampled_while_batches_were_made() -> None:
    flow = draw_flow(training)
    end = flow.window.opened + flow.operations[flow.first + 2].start
    making = [(Line("data.py", 57, "augment"), 30), (Line("data.py", 60, "load"), 10)]
    found = account_of(flow, [(end - 2 * MS, end - MS)], making)
    assert at(found, 21).parts["data"] == 0
    assert (at(found, 57).parts["data"], at(found, 60).parts["data"]) == (0.75 * MS, 0.25 * MS)
    assert at(found, 57).operations == 0
    assert sum(cost.ns for cost in found.lines) == pytest.approx(found.step_ns)


def test_a_line_says_what_it_calls_and_what_comes_out() -> None:
    cost = at(account(training), 8)
    assert (cost.operations, cost.kinds, cost.shape) == (2, (("mm", 2),), "float32[8, 8]")


def test_taking_memory_is_no_operation() -> None:
    found = account(lambda step: step.numpy(step.call("mm", step.batch(), line=8), line=9))
    assert at(found, 9).operations == 0


@pytest.mark.parametrize(
    ("paths", "pattern"),
    [
        (("encoder.0.norm", "encoder.3.norm"), "encoder.*.norm"),
        (("encoder.0.attention", "encoder.0.mlp"), "encoder.0"),
        (("encoder.0", "encoder.1"), "encoder"),
        (("encoder", "decoder"), ""),
        (("head", ""), "head"),
    ],
)
def test_the_modules_of_a_line_are_written_as_one_pattern(paths: tuple[str, ...], pattern: str) -> None:
    def body(step: Step) -> None:
        for path in paths:
            step.call("mm", step.batch(), line=8, module=path)

    assert at(account(body), 8).module == pattern


def test_each_module_has_its_forward_and_backward() -> None:
    def body(step: Step) -> None:
        hidden = step.call("mm", step.batch(), line=8, module="head")
        step.backward()
        step.gradient(hidden, hidden, ns=3 * TOOK)

    (module,) = account(body).modules
    assert (module.path, module.kind, module.operations) == ("head", "Net", 2)
    assert (module.forward_ns, module.backward_ns) == (TOOK, 3 * TOOK)


def test_stacks_begin_with_the_outermost_frame() -> None:
    stacks = account(training).stacks
    assert ("train.py:20 main", "net.py:8 forward", "linear.py:134 forward", "backward") in stacks

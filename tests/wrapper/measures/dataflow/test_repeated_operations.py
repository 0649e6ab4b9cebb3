from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.dataflow.live_operations import NOTHING_DEAD, find_dead
from perfwrap.measures.dataflow.repeated_operations import find_repeated, find_repeated_backward
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, NO_GRAD, RECOMPUTE

from tests.wrapper.drawn_windows import Draw, Step, Tensor, Where, draw_flow


def find(body: Draw) -> list[Waste]:
    return find_repeated(draw_flow(body), NOTHING_DEAD.operations, frozenset())


def backward(body: Draw) -> list[Waste]:
    return find_repeated_backward(draw_flow(body), NOTHING_DEAD.operations)


def net(step: Step, x: Tensor, caller: int, name: str = "addmm") -> Tensor:
    return step.call(name, x, step.old("weight"), line=("net.py:8 forward", f"train.py:{caller} main"))


def test_a_second_forward_on_the_same_values_is_found_at_the_line_that_asks_for_it() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        loss, metric = net(step, x, 20), net(step, x, 25)
        step.item(metric)
        step.train(loss)

    (waste,) = find(body)
    assert waste.share == pytest.approx(1 / 5)
    assert waste.other is not None
    assert (waste.lines[0].line, waste.other.line, waste.count) == (25, 20, 1)


def test_the_backward_of_the_second_computation_is_part_of_it() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        one, two = net(step, x, 20), net(step, x, 25)
        step.backward()
        for each in (one, two):
            step.optimize(step.old("weight"), step.gradient(each, each))

    (waste,) = find(body)
    assert len(waste.operations) == 2
    assert waste.share == pytest.approx(2 / 6)


def test_results_of_repeated_operations_are_the_same_values() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        one = step.call("relu", net(step, x, 20), line=21)
        two = step.call("relu", net(step, x, 25), line=26)
        step.train(step.call("add", one, two))

    assert {waste.lines[0].line for waste in find(body)} == {25, 26}


def test_random_operations_differ_each_time() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        step.train(step.call("add", net(step, x, 20, "dropout"), net(step, x, 25, "dropout")))

    assert find(body) == []


def test_other_numbers_another_part_or_another_function_is_no_repetition() -> None:
    def body(step: Step) -> None:
        x = step.batch(8, 8)
        made = [
            step.call("mul", x, line=11, scalars=2),
            step.call("mul", x, line=12, scalars=3),
            step.call("mul", step.view(x, 1, 8), line=13, scalars=3),
            step.call("div", x, line=14, scalars=3),
        ]
        step.train(step.call("cat", *made))

    assert find(body) == []


def test_checkpointing_computes_again_on_purpose() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        hidden = net(step, x, 20)
        step.backward()
        again = step.call(
            "addmm", x, step.old("weight"), line="net.py:8 forward", flags=BACKWARD | RECOMPUTE, node=None
        )
        step.optimize(step.old("weight"), step.gradient(hidden, again))

    assert find(body) == []


def test_what_checkpointing_keeps_of_its_second_computation_is_no_repetition() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        hidden = net(step, x, 20)
        step.backward()
        for flags in (BACKWARD | RECOMPUTE, BACKWARD):
            step.view(x, 8, 8, name="detach", line="net.py:8 forward", flags=flags, node=None)
        step.optimize(step.old("weight"), step.gradient(hidden, hidden))

    assert find(body) == []


def test_a_copy_that_is_written_to_later_is_needed() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        one, two = step.call("clone", x, line=11), step.call("clone", x, line=12)
        step.call("add_", step.batch(), into=two, line=13)
        step.train(step.call("add", one, two))

    assert find(body) == []


def test_values_written_in_between_are_others() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        one = net(step, x, 20)
        step.call("add_", step.batch(), into=x, line=21)
        step.train(step.call("add", one, net(step, x, 25)))

    assert find(body) == []


def test_equal_factories_are_separate_on_purpose() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        step.train(step.call("add", step.call("zeros_like", x, line=11), step.call("zeros_like", x, line=12)))

    assert find(body) == []


def test_a_state_dict_that_is_made_again_for_each_tensor_is_one_waste() -> None:
    def body(step: Step) -> None:
        for _ in range(4):
            for name in ("weight", "bias"):
                step.view(step.old(name), 8, 8, name="detach", line="ema.py:7 update")
        step.train(step.batch())

    (waste,) = find(body)
    assert waste.names == (("detach", 6),)
    assert waste.other is None


def test_work_that_is_unchanging_as_a_whole_is_left_to_that_kind() -> None:
    def body(step: Step) -> None:
        one, two = (step.call("tril", step.old("ones"), line=line) for line in (11, 12))
        step.train(step.call("add", one, two))

    flow = draw_flow(body)
    (waste,) = find_repeated(flow, frozenset(), frozenset())
    assert find_repeated(flow, frozenset(), frozenset(flow.step)) == []
    assert find_repeated(flow, frozenset(waste.operations), frozenset()) == []


def two_losses(step: Step, between: str = "", creates: bool = False) -> None:
    hidden = net(step, step.batch(), 20)
    for at in range(2):
        loss = step.call("mse_loss", hidden, line=21 + at)
        step.backward(line=30 + at)
        gradient = step.gradient(loss, loss, name="mse_loss_backward", creates=creates)
        gradient = step.gradient(hidden, gradient, creates=creates)
        total = step.accumulate("weight.grad", gradient)
        if at == 0 and between == "norm":
            step.item(step.call("linalg_vector_norm", total, line=32))
        if at == 0 and between == "clear":
            step.clear("weight.grad")
    step.optimize(step.old("weight"), total)
    step.clear("weight.grad")


def test_two_backward_passes_through_the_same_part_are_found_at_the_second() -> None:
    (waste,) = backward(two_losses)
    assert waste.in_backward
    assert (waste.count, waste.lines[0].line) == (2, 31)
    assert waste.share == pytest.approx(1 / 11)


def test_passes_whose_gradients_are_read_in_between_are_separate() -> None:
    assert backward(lambda step: two_losses(step, between="norm")) == []


def test_a_pass_whose_gradients_are_thrown_away_is_no_first_pass() -> None:
    flow = draw_flow(lambda step: two_losses(step, between="clear"))
    dead = find_dead(flow)
    assert dead is not None
    assert dead.operations
    assert find_repeated_backward(flow, dead.operations) == []


def test_a_second_derivative_visits_nodes_again() -> None:
    assert backward(lambda step: two_losses(step, creates=True)) == []


def derivatives(
    step: Step, lines: tuple[Where, Where] = (15, 16), other: bool = False, more: int = 0
) -> None:
    x = step.batch()
    u = net(step, x, 20)
    ones = step.call("ones_like", u, line=14)
    found = []
    for line, start in zip(lines, (ones, step.batch() if other else ones), strict=True):
        step.backward(line=line)
        found.append(step.gradient(u, start, creates=True))
        for number in range(more):
            step.gradient(u, step.batch(), name="sum", scalars=number, creates=True)
    loss = step.call("add", *found, line=18)
    step.backward(line=26)
    gradients = [step.gradient(each, loss, scalars=number) for number, each in enumerate(found)]
    step.optimize(step.old("weight"), *gradients)


def test_derivatives_of_the_same_by_several_inputs_are_one_call() -> None:
    (waste,) = find(derivatives)
    assert waste.in_backward
    assert waste.other is not None
    assert (waste.lines[0].line, waste.other.line) == (16, 15)
    # The second derivative, and its backward in the pass that goes through both.
    assert waste.share == pytest.approx(2 / 8)
    (waste,) = find(
        lambda step: derivatives(step, (("d.py:3 d", "train.py:15 main"), ("d.py:3 d", "train.py:16 main")))
    )
    assert (waste.lines[0].line, waste.other.line if waste.other else 0) == (16, 15)


def test_derivatives_in_a_loop_have_one_line() -> None:
    (waste,) = find(lambda step: derivatives(step, (15, 15)))
    assert waste.other == waste.lines[0]


@pytest.mark.parametrize(
    "options", [{"other": True}, {"more": 2}], ids=["other gradients", "a small part of the pass"]
)
def test_single_operations_that_passes_share_are_no_repetition(options: dict[str, Any]) -> None:
    assert find(lambda step: derivatives(step, **options)) == []


def test_passes_of_an_accumulation_share_only_casts_of_parameters() -> None:
    def body(step: Step) -> None:
        weight = step.old("weight")
        cast = step.call("_to_copy", weight, line=20)
        for _ in range(2):
            hidden = step.call("mm", step.batch(), cast, line=21)
            step.backward(line=30)
            gradient = step.gradient(cast, step.gradient(hidden, hidden), name="_to_copy")
            total = step.accumulate("weight.grad", gradient)
        step.optimize(weight, total)

    assert backward(body) == []


def test_what_runs_without_gradients_in_one_pass_alone_is_no_second_pass() -> None:
    def body(step: Step) -> None:
        hidden = net(step, step.batch(), 20)
        step.backward()
        step.optimize(step.old("weight"), step.gradient(hidden, hidden, flags=NO_GRAD))

    assert backward(body) == []


def test_its_backward_remains_if_the_first_one_has_none() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        step.item(step.call("mm", x, step.old("weight"), line=20))
        again = step.call("mm", x, step.old("weight"), line=21)
        step.backward()
        step.optimize(step.old("weight"), step.gradient(again, again))

    (waste,) = find(body)
    assert len(waste.operations) == 1


def clean(step: Step, x: Tensor, name: str = "zeros") -> Tensor:
    """Compute from fresh memory that is filled in place, as a graph layer normalises its edges."""
    kept = step.call("ne", x, line=("layer.py:3 clean", "layer.py:9 forward", "train.py:20 main"))
    degree = step.call(name, line=("layer.py:4 clean", "layer.py:9 forward", "train.py:20 main"))
    step.call("add_", kept, into=degree, line=("layer.py:5 clean", "layer.py:9 forward", "train.py:20 main"))
    return step.call("rsqrt", degree, line=("layer.py:6 clean", "layer.py:9 forward", "train.py:20 main"))


def layers(step: Step, name: str) -> None:
    x = step.batch()
    hidden = step.batch()
    for _ in range(2):
        norm = clean(step, x, name)
        hidden = step.call(
            "mul", hidden, norm, line=("layer.py:10 forward", "layer.py:10 forward", "train.py:20 main")
        )
    step.train(hidden)


def test_what_each_layer_computes_of_the_batch_is_found_at_the_call_that_does_nothing_else() -> None:
    (waste,) = find(lambda step: layers(step, "zeros"))
    assert (waste.lines[0].file.rpartition("/")[2], waste.lines[0].line) == ("layer.py", 9)
    assert waste.count == 3


def test_memory_of_unknown_content_may_differ() -> None:
    (waste,) = find(lambda step: layers(step, "empty"))
    assert waste.count == 1


def test_repeated_memory_that_something_else_fills_later_is_a_copy_of_its_own() -> None:
    def body(step: Step) -> None:
        x = step.batch()
        one, two = clean(step, x), clean(step, x)
        step.call("sub_", step.batch(), into=one, line=13)
        step.train(step.call("add", one, two))

    (waste,) = find(body)
    assert {line.line for line in waste.lines} == {3, 5}

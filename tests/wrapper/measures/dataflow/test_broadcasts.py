from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.broadcasts import find_broadcasts
from perfwrap.measures.dataflow.waste import Waste, join_alike

from tests.wrapper.drawn_windows import Draw, Step, draw_flow

PAIRS = (256, 256)


def find(body: Draw) -> list[Waste]:
    return find_broadcasts(draw_flow(body), frozenset())


def distances(step: Step, copy: str = "repeat", end: str = "sum", size: tuple[int, ...] = PAIRS) -> None:
    x = step.batch(256)
    pairs = step.call(copy, x, line=21, shape=size)
    differences = step.call("sub", pairs, x, line=22, shape=size)
    squares = step.call("pow", differences, line=22, shape=size)
    step.train(step.call(end, squares, line=23, shape=(256,) if end != "relu" else size))


@pytest.mark.parametrize("copy", ["repeat", "clone", "cat"])
@pytest.mark.parametrize("end", ["sum", "linalg_vector_norm", "mm"])
def test_copies_are_found_with_all_until_they_are_reduced(copy: str, end: str) -> None:
    (waste,) = find(lambda step: distances(step, copy, end))
    assert dict(waste.names).keys() == {copy, "sub", "pow", end}
    assert waste.share == pytest.approx(5 / 6)  # with the backward of the last one
    assert waste.certain_share == pytest.approx(1 / 6)
    assert waste.other is not None
    assert waste.other.line == 21


def test_copies_that_stay_large_are_needed() -> None:
    assert find(lambda step: distances(step, end="relu")) == []


def test_copies_that_are_not_much_larger_or_small_are_clear() -> None:
    assert find(lambda step: distances(step, size=(3, 256))) == []
    assert find(lambda step: distances(step, size=(16, 256))) == []


def test_broadcasting_without_a_copy_is_as_it_should_be() -> None:
    def body(step: Step) -> None:
        x = step.batch(256)
        one = step.view(x, *PAIRS, name="expand", stride=(0, 1))
        step.train(step.call("sum", step.call("sub", one, x, shape=PAIRS), shape=()))

    assert find(body) == []


def test_two_copies_that_meet_are_one_waste() -> None:
    def body(step: Step) -> None:
        x = step.batch(256)
        rows = step.call("repeat", x, line=21, shape=PAIRS)
        columns = step.call("clone", step.view(x, *PAIRS, name="expand", stride=(1, 0)), line=22, shape=PAIRS)
        together = step.call("sub", rows, columns, line=23, shape=PAIRS)
        step.train(step.call("sum", together, line=24, shape=()))

    (waste,) = find(body)
    assert waste.certain_share == pytest.approx(2 / 7)


def test_what_is_known_to_be_wasted_is_left_out() -> None:
    flow = draw_flow(distances)
    assert find_broadcasts(flow, frozenset(flow.step)) == []


def test_the_copies_of_each_head_are_one_waste() -> None:
    def body(step: Step) -> None:
        distances(step)
        distances(step)

    one, two = find(body)
    (both,) = join_alike([one, two])
    assert both.share == pytest.approx(one.share + two.share)
    assert both.certain_share == pytest.approx(2 / 12)
    assert len(both.operations) == len(one.operations) + len(two.operations)

from __future__ import annotations

import pytest
from perfwrap.measures.dataflow.live_operations import find_dead
from perfwrap.measures.dataflow.needless_gradients import find_untrained, split_by_training
from perfwrap.measures.dataflow.unused_operations import find_unused
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import DATA

from tests.wrapper.drawn_windows import Draw, Step, draw_flow


def split(body: Draw) -> tuple[list[Waste], list[Waste]]:
    flow = draw_flow(body)
    dead = find_dead(flow)
    assert dead is not None
    return split_by_training(flow, [waste for waste in find_unused(flow, dead) if waste.in_backward])


def backbone(step: Step) -> None:
    features = step.call("mm", step.batch(), step.old("backbone"), line=20)
    logits = step.call("mm", features, step.old("head"), line=21)
    step.backward(line=30)
    gradient = step.gradient(logits, logits)
    step.accumulate("backbone.grad", step.gradient(features, gradient), owned=False)
    step.optimize(step.old("head"), gradient)


def test_gradients_of_a_frozen_part_are_those_of_what_follows_from_the_batch_alone() -> None:
    frozen, trained = split(backbone)
    assert trained == []
    (waste,) = frozen
    assert waste.lines[0].line == 20
    assert waste.share == pytest.approx(2 / 6)  # with what adds it to the gradients of earlier steps


def gan(step: Step) -> None:
    fake = step.call("mm", step.call("rand"), step.old("generator"), line=19)
    score = step.call("mm", fake, step.old("critic"), line=20)
    step.backward(line=30)
    gradient = step.gradient(score, score)
    step.accumulate("critic.grad", step.gradient(score, score))
    step.optimize(step.old("generator"), step.gradient(fake, gradient))
    step.clear("critic.grad")
    other = step.call("mm", step.batch(), step.old("critic"), line=40)
    step.backward(line=41)
    total = step.accumulate("critic.grad", step.gradient(other, other))
    step.optimize(step.old("critic"), total)
    step.clear("critic.grad")


def test_gradients_of_weights_that_another_pass_trains_are_not_of_a_frozen_part() -> None:
    frozen, trained = split(gan)
    assert frozen == []
    (waste,) = [waste for waste in trained if 20 in [line.line for line in waste.lines]]
    assert waste.lines[0].line == 30
    assert waste.other is not None
    assert waste.other.line == 30


def test_what_training_writes_taints_all_that_follows_from_it() -> None:
    def body(step: Step) -> None:
        batch = step.call("stack", step.batch(), flags=DATA)
        features = step.call("mm", step.view(batch, 8, 8), step.old("backbone"))
        logits = step.call("mm", features, step.old("head"))
        step.call("dropout", features)
        step.backward()
        step.optimize(step.old("head"), step.gradient(logits, logits))

    flow = draw_flow(body)
    assert [flow.name(number) for number in sorted(find_untrained(flow))] == ["select", "mm", "dropout"]

"""A logarithm of a softmax, which log_softmax or cross_entropy compute in one pass, and more exactly."""

from __future__ import annotations

from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import VIEW

BETWEEN = ("add", "clamp", "clamp_min")
"""What programs put between the two against infinite values."""
SAVED = 0.5
"""Part of the time of both and their backward that the single function saves."""


def find_softmax_logs(flow: Dataflow) -> list[Waste]:
    """Return the pairs of softmax and logarithm of the step as one waste."""
    maker: dict[int, int] = {}
    found: list[int] = []
    for number in flow.step:
        operation = flow.operations[number]
        if flow.name(number) == "log" and operation.reads:
            at = maker.get(operation.reads[0])
            if at is not None and flow.name(at) in BETWEEN:
                at = next((maker[value] for value in flow.operations[at].reads[::2] if value in maker), None)
            if at is not None and flow.name(at) == "_softmax":
                found += [number, at]
        for value, _, how in operation.outputs():
            if how != VIEW:
                maker[value] = number
    if not found:
        return []
    whole = flow.with_backward(found)
    logs, softmaxes = found[::2], found[1::2]
    return [
        Waste(
            tuple(whole),
            SAVED * flow.share(whole),
            tuple(dict.fromkeys((*flow.lines(logs), *flow.lines(softmaxes)))),
            tuple(flow.callers(logs)),
            other=flow.line(softmaxes[0]),
            count=len(logs),
        )
    ]

"""Results that nothing uses, whole or in part, and gradients that nothing uses."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.dataflow import Dataflow, line_of
from perfwrap.measures.dataflow.live_operations import Liveness
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, DATA, NEW, OPTIMIZER, RECOMPUTE

MIN_ELEMENTS = 4096
"""Smaller results are not looked at in part."""
MAX_USED = 0.5

ROW_BY_ROW = frozenset(
    (
        *(
            "addmm",
            "mm",
            "bmm",
            "native_layer_norm",
            "add",
            "mul",
            "sub",
            "div",
            "relu",
            "gelu",
            "silu",
            "tanh",
        ),
        *(
            "sigmoid",
            "_softmax",
            "_log_softmax",
            "native_dropout",
            "_unsafe_view",
            "clone",
            "linear",
            "pow",
            "neg",
        ),
        *("exp", "log", "_to_copy", "threshold", "leaky_relu", "elu", "hardtanh", "clamp", "rsqrt", "sqrt"),
        *("softplus", "mkldnn_linear", "baddbmm", "_fused_rms_norm"),
    )
)
"""Functions each row of whose result depends on the same row of their input only."""

WEIGHTS_PART = 0.5
"""Part of a convolution's backward that computes the gradients of its weights; the other one is that of its input."""

PICKS = ("index", "index_select", "masked_select")
PRODUCTS = ("mm", "addmm", "bmm")

ROW_OPERAND = {"mm": 0, "bmm": 0, "linear": 0, "mkldnn_linear": 0, "addmm": 1, "baddbmm": 1}
"""The operand of a product whose rows are those of the result; all of the others is needed."""


def find_unused(flow: Dataflow, dead: Liveness) -> list[Waste]:
    """Return the dead operations by the line of the training loop that called them, gradients apart."""
    forward: dict[Line, list[int]] = defaultdict(list)
    backward: dict[Line, list[int]] = defaultdict(list)
    numbers = [number for number in sorted(dead.operations) if not flow.has(number, DATA | RECOMPUTE)]
    roots = flow.roots([number for number in numbers if not flow.has(number, BACKWARD)])
    for number in numbers:
        if flow.has(number, BACKWARD):
            outside = flow.caller_of_backward(number)
            backward[line_of(outside[0]) if outside else flow.outermost(number)].append(number)
        else:
            forward[roots[number]].append(number)
    halves = _half_used(flow, dead)
    for number in halves:
        outside = flow.caller_of_backward(number)
        backward[line_of(outside[0]) if outside else flow.outermost(number)].append(number)
    found = [
        Waste(tuple(each), flow.share(each), (root, *flow.lines(each)), tuple(flow.callers(each)))
        for root, each in forward.items()
    ]
    for caller, each in backward.items():
        outer = Counter(flow.outermost(number) for number in each)
        half = [number for number in each if number in halves]
        found.append(
            Waste(
                tuple(each),
                flow.share(each) - (1.0 - WEIGHTS_PART) * flow.share(half),
                tuple(flow.lines(each)),
                (*(line for line, _ in outer.most_common(3)), caller),
                other=caller,
                in_backward=True,
            )
        )
    return found


def _half_used(flow: Dataflow, dead: Liveness) -> list[int]:
    """Return backward operations of convolutions of which only the gradient of the input or of the weights is used."""
    found = []
    for number in flow.step:
        if flow.name(number) == "convolution_backward" and number not in dead.operations:
            made = flow.made(number)
            unused = [value in dead.values for value in made]
            if len(made) > 1 and (unused[0] or all(unused[1:])):
                found.append(number)
    return found


def find_partly_unused(flow: Dataflow, dead: Collection[int]) -> list[Waste]:
    """Return row-by-row operations of whose rows only a part is ever read."""
    used: dict[int, float] = {}
    for number in reversed(flow.step):
        part = _used_part(flow, number, used) if number not in dead else None
        if part is not None and part <= MAX_USED:
            used[number] = part
    if not used:
        return []
    whole: list[int] = []
    saved = 0.0
    for number, part in used.items():
        for each in (number, *flow.backward_of.get(number, ())):
            whole.append(each)
            saved += (1.0 - part) * flow.cost(each)
    return [
        Waste(
            tuple(whole),
            saved / flow.step_ns,
            tuple(flow.lines(whole)),
            tuple(flow.callers(whole)),
            used=min(used.values()),
        )
    ]


def _used_part(flow: Dataflow, number: int, used: dict[int, float]) -> float | None:
    """Return the part of an operation's result that is read, None if all of it is or if that is unknown."""
    operation, window = flow.operations[number], flow.window
    if flow.has(number, BACKWARD | OPTIMIZER | DATA) or flow.is_view(number) or not operation.writes:
        return None
    value, geometry, how = operation.writes[:3]
    size = window.geometries[geometry].elements
    if flow.name(number) not in ROW_BY_ROW or how != NEW or size < MIN_ELEMENTS or value in flow.last_values:
        return None
    if len(flow.writers[window.value_storage[value]]) > 1:
        return None
    width = (window.geometries[geometry].shape or [1])[-1]
    parts: dict[object, float] = {}
    for reader, shown in flow.readers[value]:
        if flow.is_view(reader):
            if reader >= flow.end:
                return None
            continue
        if reader >= flow.end:
            return None
        part = _read_part(flow, reader, shown, value, size, width)
        is_later = flow.has(reader, BACKWARD) and flow.forward_of(reader) in (number, *used)
        if is_later and flow.name(reader) not in PRODUCTS:
            continue
        if part is not None:
            parts[reader if flow.name(reader) in PICKS else shown] = part
        elif reader in used and _is_row_operand(flow, reader, value):
            parts["operation", reader] = size * used[reader]
        elif not is_later:
            return None
    return sum(parts.values()) / size if parts else None


def _is_row_operand(flow: Dataflow, reader: int, value: int) -> bool:
    """Return whether rows that nothing uses of a result are those of an operand."""
    place = ROW_OPERAND.get(flow.name(reader))
    reads = flow.operations[reader].reads[::2]
    return place is None or (place < len(reads) and reads[place] == value and reads.count(value) == 1)


def _read_part(flow: Dataflow, reader: int, shown: int, value: int, size: int, width: int) -> float | None:
    """Return how many elements of a value an operation reads, in whole rows; None if it reads all or single ones."""
    operation, geometries = flow.operations[reader], flow.window.geometries
    shape = geometries[shown]
    if flow.name(reader) in PICKS and operation.reads[0] == value:
        results = [geometries[each] for each in operation.writes[1:2]]
        if results and results[0].shape and results[0].shape[-1] == width:
            picked = results[0].elements
            return float(picked) if picked * 2 <= size else None
        return None
    if shape.elements < size and shape.shape and shape.shape[-1] == width:
        return float(shape.elements)
    return None

"""Linear layers that run on rows which are repeated or interpolated: on the rows before that they give the same.

A product of each row with the same weights may change places with whatever copies rows or mixes them with weights that
sum to 1: taking rows by their numbers, repeating them, and upsampling.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from perfwrap.measures.account.lines import Line
from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, DATA, NEW, OPTIMIZER, RECOMPUTE, Geometry

MAX_ROWS_BEFORE = 0.5
"""There must be at most this part of the rows before."""
PICKS = ("index", "index_select")
COPIES = ("clone", "repeat", "copy_", "_to_copy")
UPSAMPLES = "upsample_"
"""The beginning of the names of functions that upsample the last dimensions; the second one has the features."""
PRODUCTS = {"mm": 0, "addmm": 1}
"""Functions of linear layers, and which of their operands the rows are."""
CONVOLUTION = "convolution"


def find_late_products(flow: Dataflow, known: Collection[int]) -> list[Waste]:
    """Return, by their lines, operations that make rows with the linear layers on them, none of them in ``known``."""
    groups: dict[tuple[Line, Line], list[tuple[int, list[int], float]]] = defaultdict(list)
    for number in flow.step:
        if number in known or flow.has(number, BACKWARD | OPTIMIZER | DATA | RECOMPUTE):
            continue
        before = _part_before(flow, number)
        products = _products(flow, number) if before is not None else []
        if before is not None and products and not any(product in known for product in products):
            groups[flow.line(number), flow.line(products[0])].append((number, products, before))
    found = []
    for (line, _), each in groups.items():
        products = [product for _, some, _ in each for product in some]
        saved = sum(_saved(flow, number, some, before) for number, some, before in each)
        if saved > 0.0:
            whole = flow.with_backward((*(number for number, _, _ in each), *products))
            found.append(
                Waste(
                    tuple(whole),
                    saved,
                    tuple(flow.lines(products)),
                    tuple(flow.callers(products)),
                    other=line,
                    count=len(products),
                    used=max(before for _, _, before in each),
                )
            )
    return found


def _saved(flow: Dataflow, number: int, products: list[int], before: float) -> float:
    """Return the share of the step that is saved if the rows are made of the products' results; negative for a loss."""
    features = _features(flow, products[0])[0]
    after = sum(_features(flow, product)[1] for product in products)
    rows = (1.0 - after / features) * flow.share(flow.with_backward((number,)))
    return (1.0 - before) * flow.share(flow.with_backward(products)) + rows


def _part_before(flow: Dataflow, number: int) -> float | None:
    """Return the number of rows before an operation that makes more of them, as a part of that after it."""
    operation, geometries = flow.operations[number], flow.window.geometries
    name = flow.name(number)
    if len(operation.writes) != 3 or operation.writes[2] != NEW or not operation.reads:
        return None
    source, made = geometries[operation.reads[1]], geometries[operation.writes[1]]
    if name.startswith(UPSAMPLES):
        is_known = source.shape[:2] == made.shape[:2]
    elif name in PICKS:  # with one index, which must be that of rows if there are more of them than before
        is_known = (
            len(operation.reads) == 4 and len(source.shape) == 2 and source.shape[-1:] == made.shape[-1:]
        )
    else:
        is_copy = name in COPIES and len(operation.reads) == 2
        is_known = (
            is_copy and bool(source.shape) and source.shape[-1:] == made.shape[-1:] and source.stride[-1] != 0
        )
    part = source.elements / made.elements if is_known and made.elements else 1.0
    return part if part <= MAX_ROWS_BEFORE else None


def _products(flow: Dataflow, number: int) -> list[int]:
    """Return the linear layers on the result of an operation; none if anything else reads it."""
    operation, window = flow.operations[number], flow.window
    value, geometry, _ = operation.writes
    made = window.geometries[geometry]
    is_upsampled = flow.name(number).startswith(UPSAMPLES)
    if value in flow.last_values or flow.writers[window.value_storage[value]]:
        return []
    products: dict[int, None] = {}
    for reader, shown in flow.readers[value]:
        if flow.is_view(reader):
            continue
        view = window.geometries[shown]
        if flow.has(reader, BACKWARD):
            if flow.forward_of(reader) not in products:
                return []
        elif reader < flow.end and _is_product(flow, reader, value, view, made, is_upsampled):
            products[reader] = None
        else:
            return []
    return list(products)


def _is_product(
    flow: Dataflow, reader: int, value: int, view: Geometry, made: Geometry, is_upsampled: bool
) -> bool:
    """Return whether an operation multiplies each row of a value with the same weights, which are another one."""
    name, operation = flow.name(reader), flow.operations[reader]
    reads, geometries = operation.reads[::2], flow.window.geometries
    if reads.count(value) != 1 or view.elements != made.elements or not operation.writes:
        return False
    if is_upsampled:
        if name != CONVOLUTION or reads[0] != value or len(reads) < 2 or view.shape != made.shape:
            return False
        weights, result = geometries[operation.reads[3]], geometries[operation.writes[1]]
        is_single = all(size == 1 for size in weights.shape[2:]) and weights.shape[1] == made.shape[1]
        return is_single and result.shape[2:] == made.shape[2:]
    place = PRODUCTS.get(name)
    return place is not None and reads[place] == value and view.shape[-1:] == made.shape[-1:]


def _features(flow: Dataflow, product: int) -> tuple[int, int]:
    """Return the features of each row before and after a linear layer."""
    operation, geometries = flow.operations[product], flow.window.geometries
    if flow.name(product) == CONVOLUTION:
        weights = geometries[operation.reads[3]].shape
        return weights[1], weights[0]
    rows = geometries[operation.reads[2 * PRODUCTS[flow.name(product)] + 1]]
    return rows.shape[-1], geometries[operation.writes[1]].shape[-1]

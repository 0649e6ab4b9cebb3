"""All pairs in memory: copies or differences of broadcast tensors, which are reduced afterwards."""

from __future__ import annotations

from collections.abc import Collection

from perfwrap.measures.dataflow.dataflow import Dataflow
from perfwrap.measures.dataflow.waste import Waste
from perfwrap.timeline.operation_window import BACKWARD, DATA, NEW, OPTIMIZER, VIEW

COPIES = ("repeat", "clone", "cat", "_to_copy", "copy_", "contiguous")
MIN_COPIES = 4.0
"""How many times larger the copy must be than what it copies."""
MIN_ELEMENTS = 1 << 15
CERTAIN_PART = 0.5
"""Part of the time of a distance by differences that a function for distances saves at least."""
ELEMENTWISE = frozenset(
    (
        *(
            "add",
            "sub",
            "mul",
            "div",
            "pow",
            "abs",
            "neg",
            "exp",
            "log",
            "sqrt",
            "relu",
            "leaky_relu",
            "tanh",
        ),
        *(
            "sigmoid",
            "where",
            "maximum",
            "minimum",
            "eq",
            "ne",
            "lt",
            "gt",
            "le",
            "ge",
            "cat",
            "elu",
            "clamp",
        ),
        *("gelu", "silu", "softplus", "_to_copy", "rsub", "square"),
    )
)
DIFFERENCES = ("sub", "rsub")
DISTANCES = frozenset(("pow", "abs", "square", "linalg_vector_norm", "norm"))
"""One of these follows on a difference if it is part of a distance."""
REDUCTIONS = frozenset(
    (
        *(
            "sum",
            "mean",
            "amax",
            "amin",
            "max",
            "min",
            "linalg_vector_norm",
            "norm",
            "prod",
            "logsumexp",
            "any",
        ),
        *("all", "argmin", "argmax", "mm", "addmm", "bmm", "var", "std", "topk", "sort", "_softmax"),
    )
)


def find_broadcasts(flow: Dataflow, known: Collection[int]) -> list[Waste]:
    """Return the copies with the operations on them until they are reduced, without operations in ``known``."""
    big: dict[int, int] = {}  # value -> its copy
    copies: set[int] = set()
    differences: set[int] = set()
    chains: dict[int, list[int]] = {}
    reduced: set[int] = set()
    geometries = flow.window.geometries
    for number in flow.step:
        operation = flow.operations[number]
        if operation.flags & (BACKWARD | OPTIMIZER | DATA) or number in known or not operation.writes:
            continue
        value, geometry, how = operation.writes[:3]
        size = geometries[geometry].elements
        roots = {big[read] for read in operation.reads[::2] if read in big}
        if how == VIEW:
            continue
        is_copy = flow.name(number) in COPIES
        if (
            (is_copy or flow.name(number) in DIFFERENCES)
            and how == NEW
            and size >= MIN_ELEMENTS
            and not roots
        ):
            distinct = sum(geometries[shown].elements for shown in operation.reads[1::2])
            if distinct and size >= MIN_COPIES * distinct:
                (copies if is_copy else differences).add(number)
                big[value] = number
                chains[number] = [number]
                continue
        if not roots:
            continue
        root = min(roots)
        if flow.name(number) in ELEMENTWISE and size >= geometries_of(flow, root) / MIN_COPIES:
            big[value] = root
            chains[root].append(number)
            for other in roots - {root}:
                chains[root] += chains[other]
                chains[other] = chains[root]
        elif flow.name(number) in REDUCTIONS and size * MIN_COPIES <= geometries_of(flow, root):
            chains[root].append(number)
            reduced |= roots
    found = []
    seen: set[int] = set()
    for copy in sorted(reduced):
        numbers = sorted(set(chains[copy]) - seen)
        own = [number for number in numbers if number in copies]
        is_distance = any(flow.name(number) in DISTANCES for number in numbers)
        if not own and not is_distance:
            continue
        seen.update(numbers)
        whole = flow.with_backward(numbers)
        # A function for distances, such as cdist, also reads and writes its inputs and results.
        certain = flow.share(flow.with_backward(own)) if own else CERTAIN_PART * flow.share(whole)
        found.append(
            Waste(
                tuple(whole),
                flow.share(whole),
                tuple(flow.lines(numbers)),
                tuple(flow.callers(own or numbers)),
                other=flow.line(own[0]) if own else None,
                certain_share=certain,
                names=tuple((flow.name(number), 1) for number in numbers),
            )
        )
    return found


def geometries_of(flow: Dataflow, number: int) -> int:
    """Return the number of elements that an operation made."""
    return flow.window.geometries[flow.operations[number].writes[1]].elements

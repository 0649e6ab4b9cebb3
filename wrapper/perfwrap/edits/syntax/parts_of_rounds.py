"""Which parts of tensors the rounds of a loop use: ``x[:, i]`` in round ``i``, along which dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.lone_loops import LoneLoops
from perfwrap.edits.syntax.names import free_name, mentions, writes
from perfwrap.edits.syntax.pure_code import METHODS
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.value_origin import assigned_value

Places = tuple[int | None, ...]
"""The dimension of a tensor that each loop goes through; None for none."""
TENSOR_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "T", "requires_grad", "grad", "data")
Node = TypeVar("Node", bound=cst.CSTNode)


class Parts(NamedTuple):
    """The tensors, the dimensions, the names of the parts in a function of one round, and where they stand."""

    names: list[str]
    places: list[Places]
    arguments: list[str]
    expressions: dict[cst.Subscript, cst.BaseExpression]

    def replaced(self, node: Node) -> Node:
        """Return code with the names of the parts."""
        new = node.visit(_Replacing(self.expressions))
        assert isinstance(new, cst.CSTNode)
        return new


def find_parts(source: Source, nodes: Sequence[cst.CSTNode], loops: LoneLoops) -> Parts:
    """Return the parts that the rounds use; raises Refusal for other uses of the counters."""
    found: dict[tuple[str, Places], str] = {}
    expressions: dict[cst.Subscript, cst.BaseExpression] = {}
    for node in nodes:
        for name in loops.counters:
            for mention in mentions(source, node, name):
                part = _part_around(source, mention, node)
                if part is None or not dotted_name(part.value):
                    raise Refusal(
                        f"Line {source.line(mention)} uses {name} for something else than a part of a tensor."
                    )
                key = dotted_name(part.value), place_of(part, loops.counters)
                if key not in found:
                    found[key] = free_name(
                        source,
                        f"{key[0].replace('.', '_')}_part"
                        + "_2" * len([other for other in found if other[0] == key[0]]),
                    )
                expressions[part] = _in_round(part, loops.counters, found[key])
    if not found:
        raise Refusal("The rounds use no parts of a tensor.")
    parts = Parts(
        [name for name, _ in found], [places for _, places in found], list(found.values()), expressions
    )
    _check_lengths(source, loops, parts)
    return parts


def place_of(part: cst.Subscript, counters: Sequence[str]) -> Places:
    """Return which dimension each counter is the index of; raises Refusal for other indices before one."""
    places: list[int | None] = [None] * len(counters)
    is_known = True
    for place, element in enumerate(part.slice):
        counter = _counter_of(element, counters)
        if counter is not None:
            if not is_known or places[counter] is not None:
                raise Refusal(f"The dimension of {counters[counter]} is not known.")
            places[counter] = place
        elif not (
            isinstance(element.slice, cst.Slice)
            and element.slice.lower is element.slice.upper is element.slice.step is None
        ):
            is_known = False
    return tuple(places)


def _part_around(source: Source, mention: cst.CSTNode, node: cst.CSTNode) -> cst.Subscript | None:
    """Return the outermost subscript whose index has a counter, directly or in ``i : i + 1``."""
    element = next(source.around(mention, cst.SubscriptElement), None)
    part = source.parent(element) if element is not None else None
    return part if isinstance(part, cst.Subscript) and source.is_inside(part, node) else None


def _counter_of(element: cst.SubscriptElement, counters: Sequence[str]) -> int | None:
    """Return which counter is an index, ``i``, or a slice of one element, ``i : i + 1``."""
    index = element.slice
    if isinstance(index, cst.Index):
        name = dotted_name(index.value)
    elif isinstance(index, cst.Slice) and index.lower is not None and index.step is None:
        name = dotted_name(index.lower)
        end = index.upper
        is_one = (
            isinstance(end, cst.BinaryOperation)
            and isinstance(end.operator, cst.Add)
            and dotted_name(end.left) == name
            and isinstance(end.right, cst.Integer)
            and end.right.value == "1"
        )
        name = name if is_one else ""
    else:
        name = ""
    return counters.index(name) if name in counters else None


def _in_round(part: cst.Subscript, counters: Sequence[str], name: str) -> cst.BaseExpression:
    """Return a part as an expression of the function of one round: ``x_part[:, None]`` for ``x[:, i : i + 1]``."""
    rest = []
    for element in part.slice:
        if _counter_of(element, counters) is None:
            rest.append(element)
        elif isinstance(element.slice, cst.Slice):
            rest.append(element.with_changes(slice=cst.Index(cst.Name("None"))))
    while (
        rest
        and isinstance(rest[-1].slice, cst.Slice)
        and rest[-1].slice.upper is rest[-1].slice.lower is None
    ):
        if rest[-1].slice.step is not None:
            break
        rest.pop()
    if not rest:
        return cst.Name(name, lpar=part.lpar, rpar=part.rpar)
    rest[-1] = rest[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return part.with_changes(value=cst.Name(name), slice=rest)


def _check_lengths(source: Source, loops: LoneLoops, parts: Parts) -> None:
    """Refuse loops that do not go through a whole dimension of one of the tensors."""
    for level, (loop, length) in enumerate(zip(loops.all, loops.lengths, strict=True)):
        texts = {source.code(length)}
        if isinstance(length, cst.Name):
            texts = {_length(source, node) for node in writes(source, source.scope(loop), length.value)}
        wanted = set()
        for name, places in zip(parts.names, parts.places, strict=True):
            place = places[level]
            if place is not None:
                wanted |= {f"{name}.shape[{place}]", f"{name}.size({place})", f"{name}.size()[{place}]"}
            if place == 0 and (_is_tensor(source, loop, name) or _has_slice(parts, name)):
                wanted.add(f"len({name})")
        if len(texts) != 1 or not texts <= wanted:
            raise Refusal(
                f"The loop at line {source.line(loop)} is not known to go through a whole dimension of "
                f"{' or '.join(dict.fromkeys(parts.names))}."
            )


def _has_slice(parts: Parts, name: str) -> bool:
    """Return whether a part keeps its dimension, ``x[i : i + 1]``: of a list, the edited program fails."""
    return any(
        dotted_name(part.value) == name and isinstance(new, cst.Subscript)
        for part, new in parts.expressions.items()
    )


def _is_tensor(source: Source, loop: cst.For, name: str) -> bool:
    """Return whether a function uses a variable as only a tensor can be used, and no list."""
    for node in mentions(source, source.scope(loop), name):
        parent = source.parent(node)
        if isinstance(parent, cst.Attribute) and parent.value is node:
            if parent.attr.value in TENSOR_ATTRIBUTES or METHODS.fullmatch(parent.attr.value):
                return True
        elif isinstance(parent, cst.Subscript) and parent.value is node and len(parent.slice) > 1:
            return True
    return False


def _length(source: Source, store: cst.CSTNode) -> str:
    """Return the dimension of a tensor that a variable is set to: ``batch, count, _ = x.shape``."""
    value = assigned_value(source, store)
    if value is not None:
        return source.code(value)
    element = source.parent(store)
    names = source.parent(element) if isinstance(element, cst.Element) else None
    assign = next(source.around(store, cst.Assign), None)
    if not isinstance(names, cst.Tuple) or assign is None or len(assign.targets) != 1:
        return ""
    text = source.code(assign.value)
    if not text.endswith((".shape", ".size()")) or any(
        isinstance(found, cst.StarredElement) for found in names.elements
    ):
        return ""
    place = next(index for index, found in enumerate(names.elements) if found is element)
    return f"{text.removesuffix('.shape').removesuffix('.size()')}.shape[{place}]"


class _Replacing(cst.CSTTransformer):
    """Replaces the parts of tensors, by identity."""

    def __init__(self, expressions: dict[cst.Subscript, cst.BaseExpression]) -> None:
        super().__init__()
        self._expressions = expressions

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """Return the part's expression."""
        return self._expressions.get(original_node, updated_node)

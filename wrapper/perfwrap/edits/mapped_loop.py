"""Computes all rounds of a loop at once, by ``torch.vmap``: ``for i in range(x.shape[0]): out[i] = f(x[i])``.

The loop, or two nested loops, must go through whole dimensions of a tensor, and do nothing but to set one element of a
new tensor, or to append to a list. What it computes uses the counters only as the index of tensors, and calls nothing
but operations of torch and functions of this file that only compute. ``torch.vmap`` itself refuses what rounds could
not share, such as random numbers and branches on values: then the edited program fails, and the edit is dropped.
Refused: all else. Values: none.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import changed_in_place
from perfwrap.edits.syntax.call_arguments import called_name, is_method
from perfwrap.edits.syntax.names import changed_names, free_name, mentions, reads, writes
from perfwrap.edits.syntax.pure_code import check_pure
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines, module_name
from perfwrap.edits.syntax.value_origin import assigned_value

MADE = re.compile(r"(new_)?(zeros|ones|empty|full)(_like)?")
"""Functions and methods that make a tensor to be filled."""


class _Rounds(NamedTuple):
    """Nested loops, the outermost first, with their counters and the statement inside."""

    loops: list[cst.For]
    counters: list[str]
    line: cst.SimpleStatementLine


def edit(source: Source, target: Target) -> Edited:
    """Return the source with one computation instead of the loop at the line; raises Refusal."""
    rounds = _rounds_at(source, target.line)
    outer, small = rounds.loops[0], rounds.line.body[0]
    check_own_lines(source, outer)
    out, value = _result(source, rounds, small)
    if mentions(source, value, out):
        raise Refusal(f"Line {source.line(small)} uses {out}, which earlier rounds set.")
    parts = _parts(source, value, rounds.counters)
    for name in parts:
        if name in changed_names(source, outer) | changed_in_place(source, outer):
            raise Refusal(f"The loop at line {source.line(outer)} changes {name}.")
    _check_lengths(source, rounds, parts)
    check_pure(source, value)
    for name in rounds.counters:
        if any(not source.is_inside(node, outer) for node in reads(source, source.scope(outer), name)):
            raise Refusal(f"{name} is used behind the loop at line {source.line(outer)}.")
    changes: Changes = {}
    torch = module_name(source, "torch", changes)
    text = f"{torch}.vmap(" * len(rounds.loops) + _function(source, value, parts)
    text += ")" * len(rounds.loops) + f"({', '.join(parts)})"
    if isinstance(small, cst.Assign):
        ends = [f": {source.code(_length_of(loop))}" for loop in rounds.loops]
        text = f"{out}[{', '.join(ends)}] = {text}"
    else:
        text = f"{out}.extend({text}.unbind())"

    def change(updated: cst.CSTNode) -> cst.CSTNode:
        assert isinstance(updated, cst.For)
        comments = _Comments(rounds.line.trailing_whitespace.comment)
        outer.body.visit(comments)
        new = source.parse(text)
        assert isinstance(new, cst.SimpleStatementLine)
        return rounds.line.with_changes(
            body=new.body, leading_lines=[*updated.leading_lines, *comments.found]
        )

    changes[outer] = change
    return Edited(
        source.replaced(changes),
        f"Compute all rounds of the loop at line {source.line(outer)} at once, by torch.vmap.",
    )


def _rounds_at(source: Source, line: int) -> _Rounds:
    """Return the outermost loops around a line that do nothing but one statement."""
    loops = [_loop_at(source, line)]
    while isinstance(only := _only(loops[-1]), cst.For):
        loops.append(only)
    while isinstance(outer := source.loop(loops[0]), cst.For) and _only(outer) is loops[0]:
        loops.insert(0, outer)
    statement = _only(loops[-1])
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        raise Refusal(f"The loop at line {source.line(loops[0])} has more than one statement.")
    counters = []
    for loop in loops:
        counted = loop.iter
        if (
            loop.orelse is not None
            or not isinstance(loop.target, cst.Name)
            or not isinstance(counted, cst.Call)
            or dotted_name(counted.func) != "range"
            or len(counted.args) != 1
        ):
            raise Refusal(f"The loop at line {source.line(loop)} does not count from zero to a length.")
        counters.append(loop.target.value)
    return _Rounds(loops, counters, statement)


def _loop_at(source: Source, line: int) -> cst.For:
    """Return the innermost loop around a line, or around the only call in a loop of the function that it is in."""
    for kind in (cst.For, cst.FunctionDef):
        found = [
            node
            for node in source.inside(source.module, kind)
            if source.line(node) <= line <= source.last_line(node)
        ]
        if found and kind is cst.For:
            return found[-1]
        if found:
            calls = [
                source.loop(call)
                for call in source.inside(source.module, cst.Call)
                if dotted_name(call.func) == found[-1].name.value
            ]
            loops = [loop for loop in calls if isinstance(loop, cst.For)]
            if len(loops) == 1:
                return loops[0]
    raise Refusal(f"Line {line} is not in a for loop.")


def _length_of(loop: cst.For) -> cst.BaseExpression:
    """Return how many rounds a loop has."""
    assert isinstance(loop.iter, cst.Call)
    return loop.iter.args[0].value


def _only(loop: cst.For) -> cst.BaseStatement | None:
    """Return the only statement of a loop."""
    body = loop.body.body
    return body[0] if len(body) == 1 and isinstance(body[0], cst.BaseStatement) else None


def _result(source: Source, rounds: _Rounds, small: cst.BaseSmallStatement) -> tuple[str, cst.BaseExpression]:
    """Return the tensor or list that the loop fills, and what it computes in a round."""
    line = source.line(small)
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        filled = small.targets[0].target
        if not isinstance(filled, cst.Subscript) or _counters_of(filled) != rounds.counters:
            raise Refusal(f"Line {line} does not set the element of the round.")
        out = dotted_name(filled.value)
        values = [assigned_value(source, node) for node in writes(source, source.scope(small), out)]
        if (
            len(values) != 1
            or not isinstance(values[0], cst.Call)
            or not MADE.fullmatch(called_name(values[0]))
        ):
            raise Refusal(f"{out} is not known to be a tensor that the function makes.")
        return out, small.value
    call = small.value if isinstance(small, cst.Expr) else None
    if isinstance(call, cst.Call) and is_method(call, "append") and len(call.args) == 1:
        assert isinstance(call.func, cst.Attribute)
        out = dotted_name(call.func.value)
        values = [assigned_value(source, node) for node in writes(source, source.scope(small), out)]
        if len(rounds.loops) == 1 and values and all(isinstance(found, cst.List) for found in values):
            return out, call.args[0].value
    raise Refusal(f"Line {line} neither sets the element of a tensor nor appends to a list of the function.")


def _counters_of(subscript: cst.Subscript) -> list[str]:
    """Return the variables that are all of an index: ``i`` and ``j`` of ``x[i, j]``; empty for any other index."""
    names = [
        element.slice.value if isinstance(element.slice, cst.Index) else None for element in subscript.slice
    ]
    return [found.value for found in names if isinstance(found, cst.Name)] if all(names) else []


def _parts(source: Source, value: cst.BaseExpression, counters: list[str]) -> dict[str, list[cst.Subscript]]:
    """Return where the rounds use their parts of tensors, by the names of the tensors."""
    found: dict[str, list[cst.Subscript]] = {}
    for name in counters:
        for node in mentions(source, value, name):
            part = next(source.around(node, cst.Subscript), None)
            if part is None or not source.is_inside(part, value) or not isinstance(part.value, cst.Name):
                raise Refusal(f"Line {source.line(node)} uses {name} for something else than an element.")
            if _counters_of(part) != counters:
                raise Refusal(f"Line {source.line(node)} does not use the element of the round.")
            same = found.setdefault(part.value.value, [])
            if not any(part is each for each in same):
                same.append(part)
    if not found:
        raise Refusal("The rounds use no elements of a tensor.")
    for name, subscripts in found.items():
        if len(mentions(source, value, name)) > len(subscripts):
            raise Refusal(f"The rounds use all of {name}, not only their element.")
    return found


def _check_lengths(source: Source, rounds: _Rounds, parts: dict[str, list[cst.Subscript]]) -> None:
    """Refuse loops that do not go through the whole first dimensions of one of the tensors."""
    for place, loop in enumerate(rounds.loops):
        length = _length_of(loop)
        texts = {source.code(length)}
        if isinstance(length, cst.Name):
            stores = writes(source, source.scope(loop), length.value)
            texts = {_length(source, node) for node in stores}
        wanted = {
            text
            for name in parts
            for text in (f"{name}.shape[{place}]", f"{name}.size({place})", f"{name}.size()[{place}]")
        }
        if len(texts) != 1 or not texts <= wanted:
            raise Refusal(
                f"The loop at line {source.line(loop)} is not known to go through a whole dimension of "
                f"{' or '.join(parts)}."
            )


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


def _function(source: Source, value: cst.BaseExpression, parts: dict[str, list[cst.Subscript]]) -> str:
    """Return the function of one round: of the elements of the tensors."""
    names = {name: free_name(source, f"{name}_part") for name in parts}
    changes = {part: cst.Name(names[name]) for name, each in parts.items() for part in each}
    replaced = value.visit(_Parts(changes))
    assert isinstance(replaced, cst.BaseExpression)
    return f"lambda {', '.join(names.values())}: {source.code(replaced)}"


class _Comments(cst.CSTVisitor):
    """Lists the comments of a block, but one."""

    def __init__(self, besides: cst.Comment | None) -> None:
        super().__init__()
        self._besides = besides
        self.found: list[cst.EmptyLine] = []

    def visit_Comment(self, node: cst.Comment) -> None:
        """Keep a comment as a line of its own."""
        if node is not self._besides:
            self.found.append(cst.EmptyLine(comment=node))


class _Parts(cst.CSTTransformer):
    """Replaces the elements of tensors, by identity."""

    def __init__(self, changes: dict[cst.Subscript, cst.Name]) -> None:
        super().__init__()
        self._changes = changes

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """Return the element's name."""
        return self._changes.get(original_node, updated_node)

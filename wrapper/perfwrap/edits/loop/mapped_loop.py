"""Computes all rounds of a loop at once, by ``torch.vmap``: ``for i in range(x.shape[0]): out[i] = f(x[i])``.

The loop, or two nested loops, must go through whole dimensions of a tensor, and do nothing but to set one part of a
new tensor, or to append to a list. What it computes uses the counters only as an index of tensors, and calls nothing
but operations of torch and functions of this file that only compute. ``torch.vmap`` itself refuses what rounds cannot
share, such as random numbers and branches on values: then the edited program fails, and the edit is dropped.
Refused: all else. Values: none.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, NothingThere, Refusal, Target
from perfwrap.edits.syntax.blocks import changed_in_place
from perfwrap.edits.syntax.call_arguments import called_name, is_method
from perfwrap.edits.syntax.lone_loops import LoneLoops, find_loops
from perfwrap.edits.syntax.names import changed_names, free_name, mentions, reads, writes
from perfwrap.edits.syntax.parts_of_rounds import Parts, find_parts, place_of
from perfwrap.edits.syntax.pure_code import check_pure
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines, module_name
from perfwrap.edits.syntax.value_origin import assigned_value

MADE = re.compile(r"(new_)?(zeros|ones|empty|full)(_like)?")
"""Functions and methods that make a tensor to be filled."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source with one computation instead of the loop at the line; raises Refusal."""
    loops = find_loops(source, target.line)
    outer, (*before, last) = loops.all[0], loops.body
    check_own_lines(source, outer)
    out, value, filled = _result(source, loops, last)
    _check_variables(source, loops, out)
    parts = find_parts(source, [*before, value], loops)
    for name in parts.names:
        if name in changed_names(source, outer) | changed_in_place(source, outer):
            raise Refusal(f"The loop at line {source.line(outer)} changes {name}.")
    for node in [*source.inside(outer.body, cst.Assign), value]:
        check_pure(source, node.value if isinstance(node, cst.Assign) else node)
    changes: Changes = {}
    torch = module_name(source, "torch", changes)
    function = _lambda(source, value, parts) if not before else free_name(source, f"one_{loops.counters[0]}")
    text = _mapped(torch, function, parts, loops, filled)
    if filled is None:
        text = f"{out}.extend({text}.unbind())"
    else:
        ranges = filled.visit(_Ranges(source, loops))
        assert isinstance(ranges, cst.Subscript)
        text = f"{source.code(ranges)} = {text}"
    # Without a round, vmap fails.
    test = " and ".join(source.code(length) for length in loops.lengths)

    def change(updated: cst.CSTNode) -> cst.FlattenSentinel[cst.CSTNode]:
        assert isinstance(updated, cst.For)
        new = source.parse(f"if {test}:\n    {text}\n")
        assert isinstance(new, cst.If)
        if before:
            definition = _definition(source, function, loops, value, parts)
            return cst.FlattenSentinel([definition.with_changes(leading_lines=updated.leading_lines), new])
        comments = _Comments(last.trailing_whitespace.comment)
        outer.body.visit(comments)
        (line,) = new.body.body
        line = line.with_changes(trailing_whitespace=last.trailing_whitespace)
        body = new.body.with_changes(body=[line])
        return cst.FlattenSentinel(
            [new.with_changes(body=body, leading_lines=[*updated.leading_lines, *comments.found])]
        )

    changes[outer] = change
    return Edited(
        source.replaced(changes),
        f"Compute all rounds of the loop at line {source.line(outer)} at once, by torch.vmap.",
    )


def _result(
    source: Source, loops: LoneLoops, last: cst.SimpleStatementLine
) -> tuple[str, cst.BaseExpression, cst.Subscript | None]:
    """Return the tensor or list that the loops fill, what they compute in a round, and the part that this sets."""
    small, line = last.body[0], source.line(last)
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        filled = small.targets[0].target
        out = dotted_name(filled.value) if isinstance(filled, cst.Subscript) else ""
        values = (
            [assigned_value(source, node) for node in writes(source, source.scope(small), out)] if out else []
        )
        (made,) = values if len(values) == 1 else (None,)
        if (
            isinstance(filled, cst.Subscript)
            and isinstance(made, cst.Call)
            and MADE.fullmatch(called_name(made))
        ):
            return out, small.value, filled
        raise NothingThere(f"Line {line} does not set a part of a tensor that the function makes.")
    call = small.value if isinstance(small, cst.Expr) else None
    if isinstance(call, cst.Call) and is_method(call, "append") and len(call.args) == 1:
        assert isinstance(call.func, cst.Attribute)
        out = dotted_name(call.func.value)
        values = [assigned_value(source, node) for node in writes(source, source.scope(small), out)]
        if len(loops.all) == 1 and values and all(isinstance(found, cst.List) for found in values):
            return out, call.args[0].value, None
    raise NothingThere(f"Line {line} neither sets a part of a tensor nor appends to a list of the function.")


def _check_variables(source: Source, loops: LoneLoops, out: str) -> None:
    """Refuse variables of the loop that a later round, or code behind the loop, may use."""
    outer, scope = loops.all[0], source.scope(loops.all[0])
    if len(mentions(source, outer, out)) > 1:
        raise Refusal(f"The loop at line {source.line(outer)} uses {out}, which earlier rounds set.")
    own = list(loops.counters)
    for statement in loops.body[:-1]:
        assign = statement.body[0]
        assert isinstance(assign, cst.Assign)
        for name in sorted(changed_names(source, statement)):
            own.append(name)
            if "." in name or any(
                source.line(node) <= source.last_line(statement) for node in reads(source, outer.body, name)
            ):
                raise Refusal(f"Line {source.line(statement)} may use {name} of an earlier round.")
    for name in own:
        if any(not source.is_inside(node, outer) for node in reads(source, scope, name)):
            raise Refusal(f"{name} is used outside of the loop at line {source.line(outer)}.")


def _mapped(torch: str, function: str, parts: Parts, loops: LoneLoops, filled: cst.Subscript | None) -> str:
    """Return the call of ``vmap``, one inside of the other for nested loops."""
    text = function
    levels = range(len(loops.all))
    of_result = place_of(filled, loops.counters) if filled is not None else (0,)
    for level in reversed(levels):
        places = [_within(each, level) for each in parts.places]
        given = repr(places[0]) if len(places) == 1 else repr(tuple(places))
        options = f", in_dims={given}" if any(place != 0 for place in places) else ""
        result = _within(of_result, level)
        options += f", out_dims={result}" if result else ""
        text = f"{torch}.vmap({text}{options})"
    return f"{text}({', '.join(parts.names)})"


def _within(places: tuple[int | None, ...], level: int) -> int | None:
    """Return the dimension of a loop, after those of the loops around it were taken."""
    own = places[level]
    return None if own is None else own - sum(place is not None and place < own for place in places[:level])


def _lambda(source: Source, value: cst.BaseExpression, parts: Parts) -> str:
    """Return the function of one round."""
    return f"lambda {', '.join(parts.arguments)}: {source.code(parts.replaced(value))}"


def _definition(
    source: Source, function: str, loops: LoneLoops, value: cst.BaseExpression, parts: Parts
) -> cst.FunctionDef:
    """Return the function of one round, with the statements of the loop."""
    definition = source.parse(f"def {function}({', '.join(parts.arguments)}):\n    return 0\n")
    assert isinstance(definition, cst.FunctionDef)
    last = loops.body[-1].with_changes(body=[cst.Return(parts.replaced(value))])
    lines = [parts.replaced(statement) for statement in loops.body[:-1]]
    return definition.with_changes(body=loops.all[-1].body.with_changes(body=[*lines, last]))


class _Ranges(cst.CSTTransformer):
    """Puts whole dimensions in place of counters: ``out[:, : len(x)]`` for ``out[:, i]``."""

    def __init__(self, source: Source, loops: LoneLoops) -> None:
        super().__init__()
        self._ends = {
            name: f": {source.code(length)}"
            for name, length in zip(loops.counters, loops.lengths, strict=True)
        }

    def leave_SubscriptElement(
        self, original_node: cst.SubscriptElement, updated_node: cst.SubscriptElement
    ) -> cst.SubscriptElement:
        """Return the whole dimension of a counter."""
        index = original_node.slice
        name = index.value.value if isinstance(index, cst.Index) and isinstance(index.value, cst.Name) else ""
        if name not in self._ends:
            return updated_node
        whole = cst.parse_expression(f"x[{self._ends[name]}]")
        assert isinstance(whole, cst.Subscript)
        return updated_node.with_changes(slice=whole.slice[0].slice)


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

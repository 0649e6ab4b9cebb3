"""Runs one backward pass for the sum of losses that share a graph, instead of one for each with ``retain_graph=True``.

Two passes of one block, with nothing but reads of values in between, become ``(a + b).backward()``. A pass in a loop
becomes ``losses.append(loss)``, and one pass for their sum after the loop. Gradients are the same up to rounding.
Refused: anything else that touches gradients in between. Values: none.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import block_of, changed_in_place, index_in
from perfwrap.edits.syntax.call_arguments import argument_of, called_name, find_call, is_method
from perfwrap.edits.syntax.names import free_name, is_stored, stored_names
from perfwrap.edits.syntax.read_values import is_read
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines, with_lines

GRADIENTS = re.compile(r"(?i)grad|step|backward|optim|clip|sync|hook")
"""What a call that may use or change gradients has in its name."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source with one backward pass for the losses of the line and the next ones; raises Refusal."""
    call = find_call(source, target.line, lambda call: is_method(call, "backward"), "backward()")
    statement = source.statement(call)
    check_own_lines(source, statement)
    if "create_graph" in source.code(statement):
        raise Refusal(f"Line {target.line} has create_graph.")
    pair = _pair(source, call)
    if pair is not None:
        return _of_pair(source, *pair)
    _check_pass(source, call)
    loop = source.loop(call)
    if (
        not isinstance(loop, cst.For)
        or loop.orelse is not None
        or block_of(source, statement) is not loop.body.body
    ):
        raise Refusal(
            f"Line {target.line} is neither one of two backward passes nor in a for loop of losses."
        )
    return _of_loop(source, call, loop)


def _check_pass(source: Source, call: cst.Call) -> None:
    """Refuse a pass that does not keep its graph, or does more than ``loss.backward(retain_graph=True)``."""
    kept = argument_of(call, "retain_graph")
    if kept is None or source.code(kept.value) != "True" or len(call.args) != 1:
        raise Refusal(f"Line {source.line(call)} has no retain_graph=True.")
    if not isinstance(source.parent(call), cst.Expr) or not _loss(call):
        raise Refusal(f"The loss at line {source.line(call)} is not a variable.")


def _loss(call: cst.Call) -> str:
    """Return the name of the loss whose backward pass a call runs."""
    return dotted_name(call.func.value) if isinstance(call.func, cst.Attribute) else ""


def _pair(source: Source, call: cst.Call) -> tuple[cst.Call, cst.Call] | None:
    """Return a pass that keeps its graph and the next one of its block, one of which is that of the line."""
    block = block_of(source, source.statement(call))
    passes = [
        found
        for statement in block
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
        for found in [getattr(statement.body[0], "value", None)]
        if isinstance(found, cst.Call) and is_method(found, "backward")
    ]
    place = next((index for index, found in enumerate(passes) if found is call), None)
    if place is None or len(passes) < 2:
        return None
    first = place if place + 1 < len(passes) and argument_of(call, "retain_graph") is not None else place - 1
    return (passes[first], passes[first + 1]) if first >= 0 else None


def _of_pair(source: Source, first: cst.Call, second: cst.Call) -> Edited:
    """Return the source in which the second pass is that of both losses."""
    _check_pass(source, first)
    if not _loss(second) or any(found.keyword is None for found in second.args):
        raise Refusal(f"The loss at line {source.line(second)} is not a variable.")
    statement = source.statement(first)
    block = block_of(source, statement)
    begin, end = index_in(source, block, first), index_in(source, block, second)
    assert begin is not None and end is not None
    losses = {_loss(first), _loss(second)}
    for between in block[begin + 1 : end]:
        calls = list(source.inside(between, cst.Call))
        only_reads = all(is_read(source, call) or dotted_name(call.func) == "print" for call in calls)
        if (
            not isinstance(between, cst.SimpleStatementLine)
            or not only_reads
            or _uses_gradients(source, between)
        ):
            raise Refusal(f"Line {source.line(between)} does something between the two backward passes.")
        if losses & stored_names(source, between):
            raise Refusal(f"Line {source.line(between)} sets a loss between the two backward passes.")
    if len(losses) == 1:
        raise Refusal("Both backward passes are of the same loss.")
    both = cst.parse_expression(f"({_loss(first)} + {_loss(second)})")
    assert isinstance(second.func, cst.Attribute)
    changes: Changes = {
        second.func.value: both,
        statement: lambda updated: cst.RemovalSentinel.REMOVE,
    }
    if any(line.comment for line in getattr(statement, "leading_lines", ())):
        raise Refusal(f"Line {source.line(statement)} has a comment above it, which may be of more lines.")
    return Edited(
        source.replaced(changes),
        f"Run one backward pass for the losses of line {source.line(first)} and line {source.line(second)}.",
    )


def _of_loop(source: Source, call: cst.Call, loop: cst.For) -> Edited:
    """Return the source that gathers the losses of a loop, and runs one pass for their sum after it."""
    statement, loss = source.statement(call), _loss(call)
    check_own_lines(source, loop)
    if _uses_gradients(source, loop.body, besides=call):
        raise Refusal(f"The loop at line {source.line(loop)} uses gradients, or may.")
    if loss in changed_in_place(source, loop) or any(
        dotted_name(found.target) == loss for found in source.inside(loop, cst.AugAssign)
    ):
        raise Refusal(f"The loop at line {source.line(loop)} changes {loss} in place.")
    if any(source.inside(loop.body, cst.Break, cst.Return, cst.Yield, cst.Await, cst.Try)):
        raise Refusal(f"The loop at line {source.line(loop)} may end early.")
    losses = free_name(source, "losses")
    appended = f"{losses}.append({loss})"
    changes: Changes = {
        call: cst.parse_expression(appended),
        loop: with_lines(source, loop, [f"{losses} = []"], [f"if {losses}:\n    sum({losses}).backward()\n"]),
    }
    return Edited(
        source.replaced(changes),
        f"Run one backward pass for all losses of the loop at line {source.line(loop)}, instead of that of line "
        f"{source.line(statement)} for each.",
    )


def _uses_gradients(source: Source, inside: cst.CSTNode, besides: cst.Call | None = None) -> bool:
    """Return whether code may use or change gradients, as far as its names say."""
    calls = [call for call in source.inside(inside, cst.Call) if call is not besides]
    if any(GRADIENTS.search(called_name(call)) for call in calls):
        return True
    return any(
        found.attr.value == "grad" or (is_stored(source, found) and "grad" in found.attr.value)
        for found in source.inside(inside, cst.Attribute)
    )

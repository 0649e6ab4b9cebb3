"""Sums a loss on its device: ``total += loss.item()`` becomes ``total += loss.detach().double()``.

The sum is read with ``float()`` where the loop reads it now and then, and once after the loop. In double precision it
is the sum that Python computes. A count, such as ``(output == target).sum().item()``, stays a whole number. Refused:
sums that the loop reads in each round, that are no local variables, that may be of either kind, and whose loop is in a
``try`` that may end it. Values: none.
"""

from __future__ import annotations

import ast
import re

import libcst as cst

from perfwrap.edits.outcome import Edited, NothingThere, Refusal, Target
from perfwrap.edits.syntax.call_arguments import is_method, receiver
from perfwrap.edits.syntax.names import is_stored, mentions, writes
from perfwrap.edits.syntax.read_values import device_value, find_read, is_now_and_then, is_read_after
from perfwrap.edits.syntax.source_tree import Loop, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines, with_lines

FLOATS = re.compile(r"\.float\(\)\.(sum|mean)\(\)|\.mean\(\)")
COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")
LOSS = re.compile(r"(?i)loss|nll|mse|cross_?entropy|\bkl|elbo")


def edit(source: Source, target: Target) -> Edited:
    """Return the source that sums the value of the line without reading it; raises Refusal."""
    read = find_read(source, target.line)
    statement = next(source.around(read, cst.AugAssign), None)
    if (
        statement is None
        or not isinstance(statement.operator, cst.AddAssign)
        or not isinstance(statement.target, cst.Name)
    ):
        raise NothingThere(f"Line {target.line} does not add a value that it reads to a variable.")
    name, loop = statement.target.value, source.loop(statement)
    if loop is None:
        raise Refusal(f"Line {target.line} is not in a loop.")
    _check_factors(source, statement.value, read)
    value = device_value(read)
    is_count = statement.value is read and _counts(value)
    if not is_count and not _is_floating(source, read, value):
        raise Refusal(f"{name} may count: a sum of whole numbers would change its type.")
    changes = reads_changed(source, name, statement, loop, int if is_count else float)
    double = cst.Call(cst.Attribute(cst.Call(cst.Attribute(value, cst.Name("detach"))), cst.Name("double")))
    changes[read] = value if is_count else double
    return Edited(
        source.replaced(changes),
        f"Sum {source.code(value)} at line {source.line(read)} on its device, and read {name} after the loop.",
    )


def reads_changed(
    source: Source, name: str, statement: cst.CSTNode, loop: Loop, kind: type[float] | type[int] = float
) -> Changes:
    """Return the changes that read a sum as a number: in the loop where it is used, and after the loop."""
    scope = source.scope(loop)
    if not isinstance(scope, cst.FunctionDef | cst.Module):
        raise Refusal(f"{name} is not a variable of a function.")
    check_variable(source, name, scope, loop)
    changes: Changes = {}
    for node in mentions(source, loop, name):
        if source.is_inside(node, statement) or is_stored(source, node):
            continue
        if not is_now_and_then(source, node, loop) and not any(source.around(node, cst.Return)):
            raise Refusal(f"Line {source.line(node)} reads {name} in each round.")
        changes[node] = cst.Call(cst.Name(kind.__name__), [cst.Arg(cst.Name(name))])
    stores = writes(source, scope, name)
    if not any(_sets_numbers(source, node, kind) for node in stores):
        raise Refusal(f"{name} does not begin as a number in the same function.")
    for node in stores:
        is_elsewhere = isinstance(source.parent(node), cst.AugAssign) and not source.is_inside(node, loop)
        if not (source.is_inside(node, statement) or is_elsewhere or _sets_numbers(source, node, kind)):
            raise Refusal(f"Line {source.line(node)} also sets {name}.")
    if is_read_after(source, name, loop, scope):
        changes[loop] = with_lines(source, loop, [], [f"{name} = {kind.__name__}({name})"])
    return changes


def check_variable(source: Source, name: str, scope: cst.CSTNode, loop: Loop) -> None:
    """Refuse a variable that other functions see, and a loop that an exception may end before its reader."""
    check_own_lines(source, loop)
    for node in source.inside(scope, cst.NameItem):
        if node.name.value == name:
            raise Refusal(f"{name} is a variable of another function.")
    for node in mentions(source, source.module, name):
        if source.scope(node) is not scope and (
            isinstance(scope, cst.Module) or source.is_inside(node, scope)
        ):
            raise Refusal(f"Line {source.line(node)} uses {name} in another function.")
    for outer in source.around(loop, cst.Try, cst.TryStar):
        if source.is_inside(loop, outer.body):
            parts = [*outer.handlers, *([outer.finalbody] if outer.finalbody else [])]
            if any(mentions(source, part, name) for part in parts):
                raise Refusal(f"{name} is read where an exception ends the loop.")


def _sets_numbers(source: Source, node: cst.CSTNode, kind: type[float] | type[int]) -> bool:
    """Return whether an assignment sets its names to literal numbers, whole ones for ``int``: ``a, b = 0, 0``."""
    assign = next(source.around(node, cst.Assign), None)
    try:
        value = ast.literal_eval(source.code(assign.value)) if assign is not None else None
    except (ValueError, SyntaxError):
        return False
    values = value if isinstance(value, tuple) else (value,)
    return all(type(number) is int or (kind is float and isinstance(number, float)) for number in values)


def _check_factors(source: Source, value: cst.BaseExpression, read: cst.CSTNode) -> None:
    """Refuse a summand that does more with the value than to multiply, divide or add it."""
    node = source.parent(read)
    while node is not None and node is not value and read is not value:
        if not isinstance(node, cst.BinaryOperation) or not isinstance(
            node.operator, cst.Multiply | cst.Divide | cst.Add | cst.Subtract
        ):
            raise Refusal(f"Line {source.line(read)} does more with the value than to add it.")
        node = source.parent(node)
    others = [
        found for found in source.inside(value, cst.Call) if is_method(found, "item") and found is not read
    ]
    if others:
        raise Refusal(f"Line {source.line(read)} reads several values.")


def _counts(value: cst.BaseExpression) -> bool:
    """Return whether a value is a number of elements: ``(output == target).sum()``."""
    if not isinstance(value, cst.Call) or not is_method(value, "sum") or value.args:
        return False
    assert isinstance(value.func, cst.Attribute)
    inner = value.func.value
    return isinstance(inner, cst.Comparison) or (isinstance(inner, cst.Call) and is_method(inner, *COMPARES))


def _is_floating(source: Source, read: cst.Call, value: cst.BaseExpression) -> bool:
    """Return whether a value is a loss, which has a backward pass here or is named so, or a sum or mean of floats."""
    if FLOATS.search(source.code(value)):
        return True
    scope = source.scope(read)
    text = dotted_name(value)
    trained = {receiver(call) for call in source.inside(scope, cst.Call) if is_method(call, "backward")}
    return text in trained - {""} or bool(LOSS.search(source.code(value)))

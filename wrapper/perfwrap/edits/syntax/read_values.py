"""Finds where a loop reads a tensor's value, and whether it uses it in each round."""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.call_arguments import find_call, is_method
from perfwrap.edits.syntax.names import reads
from perfwrap.edits.syntax.source_tree import Loop, Source, dotted_name

WITHOUT_COPY = ("detach", "cpu")


def find_read(source: Source, line: int) -> cst.Call:
    """Return the call at a line that reads a value: ``x.item()`` or ``float(x)``."""
    return find_call(source, line, lambda call: is_read(source, call), "item() or float()")


def is_read(source: Source, call: cst.Call) -> bool:
    """Return whether a call reads a tensor's value."""
    if is_method(call, "item"):
        return not call.args
    is_float = dotted_name(call.func) == "float" and len(call.args) == 1
    return is_float and not isinstance(call.args[0].value, cst.SimpleString | cst.Integer | cst.Float)


def device_value(read: cst.Call) -> cst.BaseExpression:
    """Return the tensor that is read, without ``.detach()``, ``.data`` and ``.cpu()`` behind it."""
    value = read.func.value if isinstance(read.func, cst.Attribute) else read.args[0].value
    while True:
        if isinstance(value, cst.Call) and is_method(value, *WITHOUT_COPY) and not value.args:
            assert isinstance(value.func, cst.Attribute)
            value = value.func.value
        elif isinstance(value, cst.Attribute) and value.attr.value == "data":
            value = value.value
        elif isinstance(value, cst.Call) and is_method(value, "item"):
            raise Refusal("The value is read twice.")
        else:
            break
    if isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
        return value
    return value if value.lpar else value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def is_now_and_then(source: Source, node: cst.CSTNode, loop: Loop) -> bool:
    """Return whether a node runs only in some rounds of a loop: under ``if step % 100 == 0`` or the like."""
    for outer in source.around(node, cst.If):
        if not source.is_inside(outer, loop):
            return False
        if source.is_inside(node, outer.body) and any(
            isinstance(operation.operator, cst.Modulo)
            for operation in source.inside(outer.test, cst.BinaryOperation)
        ):
            return True
    return False


def is_read_after(source: Source, name: str, loop: Loop, scope: cst.CSTNode) -> bool:
    """Return whether a variable is read behind a loop, or before it in the next round of an outer loop."""
    return any(not source.is_inside(node, loop) for node in reads(source, scope, name))

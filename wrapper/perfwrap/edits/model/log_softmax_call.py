"""Replaces ``log(softmax(x))`` by ``log_softmax(x)``, which is one operation and exact. Values: none.

The softmax may be inside of the logarithm, or in a variable of the same block that is set before it; where the
variable has other readers it stays. ``log(softmax(x) + eps)`` is refused, because its values are others.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import is_unchanged_between, value_before
from perfwrap.edits.syntax.call_arguments import is_method
from perfwrap.edits.syntax.names import read_names
from perfwrap.edits.syntax.source_tree import Source

SOFTMAX = ("torch.softmax", "torch.nn.functional.softmax")


def edit(source: Source, target: Target) -> Edited:
    """Return the source with ``log_softmax`` where the line takes a logarithm or a softmax; raises Refusal."""
    found = []
    for log in source.inside(source.module, cst.Call):
        operand = _operand(source, log)
        softmax = _softmax(source, operand) if operand is not None else None
        if softmax is not None and target.line in (*_lines(source, log), *_lines(source, softmax)):
            found.append((log, softmax))
    if len(found) != 1:
        raise Refusal(f"Line {target.line} is not of one logarithm of a softmax.")
    log, softmax = found[0]
    if not isinstance(softmax.func, cst.Attribute):
        raise Refusal(f"{source.code(softmax.func)} is imported by its own name.")
    operand = _operand(source, log)
    if isinstance(operand, cst.Name) and not (
        is_unchanged_between(source, read_names(source, softmax), softmax, log)
        and is_unchanged_between(source, [operand.value], softmax, log, with_first=False)
    ):
        raise Refusal(
            f"The values of the softmax at line {source.line(softmax)} change before the logarithm."
        )
    new = softmax.with_changes(func=softmax.func.with_changes(attr=cst.Name("log_softmax")))
    return Edited(
        source.replaced({log: new.with_changes(lpar=log.lpar, rpar=log.rpar)}),
        f"Use log_softmax() for the logarithm of the softmax at line {source.line(log)}.",
    )


def _lines(source: Source, node: cst.CSTNode) -> range:
    return range(source.line(node), source.last_line(node) + 1)


def _operand(source: Source, call: cst.Call) -> cst.BaseExpression | None:
    """Return what a call takes the logarithm of, None if it takes none."""
    if source.name(call.func) == "torch.log" and len(call.args) == 1:
        return call.args[0].value
    if is_method(call, "log") and not call.args and isinstance(call.func, cst.Attribute):
        return call.func.value
    return None


def _softmax(source: Source, node: cst.BaseExpression) -> cst.Call | None:
    """Return the softmax that an expression is, also by a variable."""
    if isinstance(node, cst.Name):
        value = value_before(source, node)
        return _softmax(source, value) if value is not None and not isinstance(value, cst.Name) else None
    if isinstance(node, cst.Call) and (source.name(node.func) in SOFTMAX or is_method(node, "softmax")):
        return node
    return None

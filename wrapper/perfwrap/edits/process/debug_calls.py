"""Switches off anomaly detection: removes the call, or passes False where it opens a block.

Also an argument ``detect_anomaly=True`` of a trainer is removed. Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import argument_of, callee, find_call, without_argument
from perfwrap.edits.syntax.source_tree import Source
from perfwrap.edits.syntax.statements import without_statement

NAMES = ("set_detect_anomaly", "detect_anomaly")


def edit(source: Source, target: Target) -> Edited:
    """Return the source without the anomaly detection that the line switches on; raises Refusal."""
    call = find_call(source, target.line, lambda call: _is_wanted(source, call), "anomaly detection")
    line = source.line(call)
    trainers = argument_of(call, "detect_anomaly")
    if trainers is not None:
        text = source.replaced({call: lambda updated: without_argument(call, updated, trainers)})
        return Edited(text, f"Remove detect_anomaly=True at line {line}.")
    mode = argument_of(call, "mode", 0)
    name = callee(source, call)
    if name == "set_detect_anomaly" and (mode is None or source.code(mode.value) != "True"):
        raise Refusal(f"Line {line} does not switch on anomaly detection with a literal True.")
    parent = source.parent(call)
    if isinstance(parent, cst.Expr):
        return Edited(without_statement(source, parent), f"Remove the call of {name}() at line {line}.")
    if not isinstance(parent, cst.WithItem):
        raise Refusal(f"What {name}() returns at line {line} is used.")
    if mode is not None and name == "set_detect_anomaly":
        return Edited(
            source.replaced({mode.value: cst.Name("False")}), f"Pass False to {name}() at line {line}."
        )
    if not isinstance(call.func, cst.Attribute):
        raise Refusal(f"{name}() at line {line} is imported by its own name.")
    function = call.func.with_changes(attr=cst.Name("set_detect_anomaly"))
    return Edited(
        source.replaced({call: cst.Call(function, [cst.Arg(cst.Name("False"))])}),
        f"Replace detect_anomaly() by set_detect_anomaly(False) at line {line}.",
    )


def _is_wanted(source: Source, call: cst.Call) -> bool:
    given = argument_of(call, "detect_anomaly")
    if given is not None:
        return source.code(given.value) == "True"
    name = callee(source, call)
    # A block that passes False is the result of this edit.
    mode = argument_of(call, "mode", 0)
    return name in NAMES and not (mode is not None and source.code(mode.value) == "False")

"""Applies a linear layer only to what is used: ``head(x)[:, -1, :]`` becomes ``head(x[:, -1, :])``.

All readers of the output must take the same slice, which leaves the last dimension whole, and the layer must be an
``nn.Linear`` of this file. Values: none.
"""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import callee, find_call
from perfwrap.edits.syntax.names import is_stored, read_names, reads, writes, writes_anywhere
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the linear layer at the line gets the slice; raises Refusal."""
    call = find_call(
        source, target.line, lambda call: _is_linear(source, call), "a linear layer of this file"
    )
    if len(call.args) != 1 or call.args[0].star:
        raise Refusal(f"The call at line {target.line} has more than one argument.")
    outer = source.parent(call)
    changes: Changes = {}
    if isinstance(outer, cst.Subscript):
        sliced = outer.slice
        changes[outer] = _applied(call, sliced)
    else:
        sliced = _common_slice(source, call, changes)
        changes[call] = _applied(call, sliced)
    last = sliced[-1].slice
    is_whole = isinstance(last, cst.Slice) and last.lower is None and last.upper is None and last.step is None
    if len(sliced) < 3 or not is_whole:
        raise Refusal("The slice may be of the last dimension: it is not written as [:, i, :].")
    if any(read_names(source, element) for element in sliced):
        raise Refusal("The slice has variables, which may change after the layer.")
    return Edited(
        source.replaced(changes), f"Take the slice before the linear layer at line {source.line(call)}."
    )


def _is_linear(source: Source, call: cst.Call) -> bool:
    """Return whether a call is of a layer that this file makes as ``nn.Linear``."""
    stores = writes_anywhere(source, dotted_name(call.func)) if dotted_name(call.func) else []
    made = [next(source.around(store, cst.Assign), None) for store in stores]
    return bool(made) and all(
        each is not None and isinstance(each.value, cst.Call) and callee(source, each.value) == "Linear"
        for each in made
    )


def _applied(call: cst.Call, sliced: Sequence[cst.SubscriptElement]) -> cst.Call:
    """Return the call with a slice of its argument."""
    value = call.args[0].value
    if not isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript):
        value = value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    argument = call.args[0].with_changes(value=cst.Subscript(value, sliced))
    return call.with_changes(args=[argument])


def _common_slice(source: Source, call: cst.Call, changes: Changes) -> Sequence[cst.SubscriptElement]:
    """Return the slice that all readers of the output take, and have them read the output itself."""
    assign = source.parent(call)
    target = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
    if not isinstance(target, cst.Name):
        raise Refusal(f"The output of the layer at line {source.line(call)} is not a variable.")
    scope = source.scope(call)
    if len(writes(source, scope, target.value)) != 1:
        raise Refusal(f"{target.value} is set in several places.")
    subscripts = []
    for node in reads(source, scope, target.value):
        outer = source.parent(node)
        if not isinstance(outer, cst.Subscript) or outer.value is not node:
            raise Refusal(f"Line {source.line(node)} uses all of {target.value}.")
        if is_stored(source, outer):
            raise Refusal(f"Line {source.line(node)} sets a part of {target.value}.")
        subscripts.append(outer)
    texts = {source.code(found.with_changes(value=cst.Name("x"))) for found in subscripts}
    if len(texts) != 1:
        raise Refusal(f"{target.value} has several slices or none.")
    for found in subscripts:
        changes[found] = found.value
    return subscripts[0].slice

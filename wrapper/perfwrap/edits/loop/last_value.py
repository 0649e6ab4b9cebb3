"""Reads only the last value of a loop: ``matrix = similarity.tolist()`` in each round becomes one read after the loop.

The loop keeps a copy of the tensor on its device; a round in which the line does not run, or no round at all, leaves
the variable as it is. Refused: variables that the loop reads or sets elsewhere, or that other functions see.
Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.loop.summed_values import check_variable
from perfwrap.edits.outcome import Edited, NothingThere, Refusal, Target
from perfwrap.edits.syntax.call_arguments import find_call, is_method
from perfwrap.edits.syntax.names import free_name, mentions
from perfwrap.edits.syntax.read_values import device_value, is_read
from perfwrap.edits.syntax.source_tree import Source
from perfwrap.edits.syntax.statements import Changes, with_lines

READS = ("tolist", "numpy")
"""Methods that read a whole tensor; ``numpy`` only of a tensor that is copied to the host."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source that reads the value of the line after the loop; raises Refusal."""
    read = find_call(source, target.line, lambda call: _is_read(source, call), "item(), tolist() or float()")
    assign = source.parent(read)
    name = assign.targets[0].target if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
    if not isinstance(name, cst.Name):
        raise NothingThere(f"Line {target.line} does not set a variable to a value that it reads.")
    loop = source.loop(read)
    if loop is None:
        raise Refusal(f"Line {target.line} is not in a loop.")
    scope = source.scope(loop)
    if not isinstance(scope, cst.FunctionDef | cst.Module):
        raise Refusal(f"{name.value} is not a variable of a function.")
    check_variable(source, name.value, scope, loop)
    for node in mentions(source, loop, name.value):
        if node is not name:
            raise Refusal(f"Line {source.line(node)} uses {name.value} in the loop.")
    if loop.orelse is not None or any(source.inside(loop, cst.Yield, cst.Await)):
        raise Refusal(f"The loop at line {source.line(loop)} has more than its rounds.")
    value = device_value(read)
    last = free_name(source, f"last_{name.value}")
    after = f"{name.value} = float({last})" if _is_float(read) else f"{name.value} = {last}{_method(read)}"
    changes: Changes = {
        loop: with_lines(source, loop, [f"{last} = None"], [f"if {last} is not None:\n    {after}\n"]),
        name: cst.Name(last),
        # A copy: the loop may change the tensor in place.
        read: cst.Call(cst.Attribute(cst.Call(cst.Attribute(value, cst.Name("detach"))), cst.Name("clone"))),
    }
    return Edited(
        source.replaced(changes),
        f"Keep {source.code(value)} at line {source.line(read)} on its device, and read it once, after the loop.",
    )


def _is_read(source: Source, call: cst.Call) -> bool:
    """Return whether a call reads a tensor, also all of its elements."""
    if is_method(call, *READS):
        assert isinstance(call.func, cst.Attribute)
        return not call.args and (is_method(call, "tolist") or _is_copied(call.func.value))
    return is_read(source, call)


def _is_copied(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Call) and is_method(value, "cpu") and not value.args


def _is_float(read: cst.Call) -> bool:
    return not isinstance(read.func, cst.Attribute)


def _method(read: cst.Call) -> str:
    """Return the read of the kept tensor."""
    assert isinstance(read.func, cst.Attribute)
    name = read.func.attr.value
    return f".cpu().{name}()" if name == "numpy" else f".{name}()"

"""Removes ``retain_graph=True`` from a backward pass whose graph no later one uses.

If one does after all, the program fails with an error; results never change unnoticed. Refused: another backward pass
of the same function over the same values, and ``create_graph``. Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import argument_of, find_call, is_method, without_argument
from perfwrap.edits.syntax.names import ingredients, read_names
from perfwrap.edits.syntax.source_tree import Source

PASSES = ("backward", "grad")


def edit(source: Source, target: Target) -> Edited:
    """Return the source without the argument in the call at the line; raises Refusal."""
    call = find_call(source, target.line, lambda call: is_method(call, *PASSES), "backward()")
    given = argument_of(call, "retain_graph")
    if given is None or source.code(given.value) != "True":
        raise Refusal(f"Line {target.line} has no retain_graph=True.")
    if argument_of(call, "create_graph") is not None:
        raise Refusal(f"Line {target.line} has create_graph.")
    scope = source.scope(call)
    own = _made_of(source, scope, call)
    for other in source.inside(scope, cst.Call):
        if other is call or not is_method(other, *PASSES):
            continue
        if _is_computed(source, call, own & _made_of(source, scope, other)):
            raise Refusal(f"The backward pass at line {source.line(other)} may use the same graph.")
    return Edited(
        source.replaced({call: lambda updated: without_argument(call, updated, given)}),
        f"Remove retain_graph=True from the backward pass at line {source.line(call)}.",
    )


def _made_of(source: Source, scope: cst.CSTNode, call: cst.Call) -> set[str]:
    """Return the names that a backward pass goes through."""
    return ingredients(source, scope, read_names(source, call))


def _is_computed(source: Source, call: cst.Call, names: set[str]) -> bool:
    """Return whether any of these names is a value that the function, or each round of its loop, gets from a call."""
    for assign in source.inside(source.scope(call), cst.Assign):
        targets = {source.code(found.target) for found in assign.targets}
        is_anew = source.loop(assign) is not None or source.loop(call) is None
        if is_anew and targets & names and any(source.inside(assign.value, cst.Call)):
            return True
    return False

"""Keeps losses on their device: a list gets ``loss.detach().clone()`` instead of ``loss.item()``.

After the loop one line reads them all. Refused: lists that the loop uses otherwise, or that other functions see.
Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.loop.summed_values import LOSS, check_variable
from perfwrap.edits.outcome import Edited, NothingThere, Refusal, Target
from perfwrap.edits.syntax.call_arguments import is_method
from perfwrap.edits.syntax.names import free_name, mentions, writes
from perfwrap.edits.syntax.read_values import device_value, find_read
from perfwrap.edits.syntax.source_tree import Loop, Source
from perfwrap.edits.syntax.statements import Changes, with_lines


def edit(source: Source, target: Target) -> Edited:
    """Return the source that reads the appended values after the loop; raises Refusal."""
    read = find_read(source, target.line)
    append = next((call for call in source.around(read, cst.Call) if is_method(call, "append")), None)
    if append is None or len(append.args) != 1 or append.args[0].value is not read:
        raise NothingThere(f"Line {target.line} does not append a value that it reads.")
    kept = append.func.value if isinstance(append.func, cst.Attribute) else None
    loop = source.loop(append)
    if not isinstance(kept, cst.Name) or loop is None:
        raise NothingThere(f"Line {target.line} does not append to a variable in a loop.")
    name, scope, value = kept.value, source.scope(loop), device_value(read)
    if not LOSS.search(source.code(value)) and not LOSS.search(name):
        raise Refusal(f"{name} may hold whole numbers, whose type would change.")
    check_variable(source, name, scope, loop)
    _check_list(source, name, scope, loop)
    for node in mentions(source, loop, name):
        if not source.is_inside(node, append):
            raise Refusal(f"Line {source.line(node)} uses {name} in the loop.")
    changes: Changes = {}
    each = free_name(source, "value")
    changes[loop] = with_lines(source, loop, [], [f"{name}[:] = [float({each}) for {each} in {name}]"])
    detached = cst.Call(cst.Attribute(value, cst.Name("detach")))
    # A copy: the loop may change the loss in place, such as by ``loss /= 4``.
    changes[read] = cst.Call(cst.Attribute(detached, cst.Name("clone")))
    return Edited(
        source.replaced(changes),
        f"Keep {source.code(value)} at line {source.line(read)} on its device, and read {name} after the loop.",
    )


def _check_list(source: Source, name: str, scope: cst.CSTNode, loop: Loop) -> None:
    """Refuse a variable that is not a new list where the loop begins; behind the loop it may become anything."""
    stores = writes(source, scope, name)
    fresh = [node for node in stores if _is_new_list(source, node) and source.line(node) < source.line(loop)]
    if not fresh:
        raise Refusal(f"{name} is not made in the same function.")
    # In the next round of an outer loop it is a new list only if that round makes it.
    is_anew = any(source.loop(node) is source.loop(loop) for node in fresh)
    for node in stores:
        is_behind = source.line(node) > source.last_line(loop)
        if not _is_new_list(source, node) and not (is_anew and is_behind):
            raise Refusal(f"Line {source.line(node)} sets {name} to something else than a new list.")


def _is_new_list(source: Source, node: cst.CSTNode) -> bool:
    """Return whether a name gets a literal list: ``a, b = [], []``."""
    assign = next(source.around(node, cst.Assign), None)
    value = assign.value if assign is not None else None
    values = [element.value for element in value.elements] if isinstance(value, cst.Tuple) else [value]
    return all(isinstance(found, cst.List) for found in values)

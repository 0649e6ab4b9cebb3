"""Gathers tensors in a list: ``out = torch.cat((out, x))`` in a loop copies all earlier parts in each round.

The loop appends to a list that begins with the value from before the loop, and one ``cat`` after the loop joins it.
Refused: variables that the loop reads or sets otherwise. Values: none.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.loop.summed_values import check_variable
from perfwrap.edits.outcome import Edited, NothingThere, Refusal, Target
from perfwrap.edits.syntax.names import free_name, mentions
from perfwrap.edits.syntax.source_tree import Source
from perfwrap.edits.syntax.statements import Changes, with_lines

JOINS = tuple(
    f"{module}.{name}"
    for module, names in (
        ("torch", ("cat", "concat", "concatenate", "vstack", "hstack")),
        ("numpy", ("concatenate", "vstack", "hstack")),
    )
    for name in names
)


def edit(source: Source, target: Target) -> Edited:
    """Return the source that joins the parts after the loop; raises Refusal."""
    assign, join, pair = _join_at(source, target.line)
    name = source.code(assign.targets[0].target)
    first, second = (element.value for element in pair.elements)
    loop = source.loop(assign)
    if loop is None:
        raise NothingThere(f"Line {target.line} is not in a loop.")
    if source.code(first) != name:
        raise Refusal(f"Line {target.line} does not add to the end of {name}.")
    scope = source.scope(loop)
    check_variable(source, name, scope, loop)
    for node in mentions(source, loop, name):
        if not source.is_inside(node, assign):
            raise Refusal(f"Line {source.line(node)} uses {name} in the loop.")
    if mentions(source, second, name):
        raise Refusal(f"Line {target.line} uses {name} twice.")
    parts = free_name(source, f"{name}_parts")
    appended = cst.Expr(cst.Call(cst.Attribute(cst.Name(parts), cst.Name("append")), [cst.Arg(second)]))
    joined = source.code(join.with_deep_changes(join.args[0], value=cst.Name(parts)))
    changes: Changes = {
        assign: appended,
        loop: with_lines(source, loop, [f"{parts} = [{name}]"], [f"{name} = {joined}"]),
    }
    return Edited(
        source.replaced(changes),
        f"Gather the parts of line {source.line(assign)} in a list, and join them once.",
    )


def _join_at(source: Source, line: int) -> tuple[cst.Assign, cst.Call, cst.Tuple | cst.List]:
    """Return the assignment at a line, its call that joins, and the pair that it joins."""
    for assign in source.inside(source.module, cst.Assign):
        if not source.line(assign) <= line <= source.last_line(assign):
            continue
        join = assign.value
        if len(assign.targets) != 1 or not isinstance(assign.targets[0].target, cst.Name):
            continue
        if not isinstance(join, cst.Call) or source.name(join.func) not in JOINS or not join.args:
            continue
        pair = join.args[0].value
        if (
            isinstance(pair, cst.Tuple | cst.List)
            and len(pair.elements) == 2
            and join.args[0].keyword is None
        ):
            return assign, join, pair
    raise NothingThere(f"Line {line} does not join a variable with a new part.")

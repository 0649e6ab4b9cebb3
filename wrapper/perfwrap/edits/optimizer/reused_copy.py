"""Averages weights in the model that has the average, instead of in a new copy of the model in each step.

``new = copy.deepcopy(model)``, whose parameters the function then sets to a mix of the old average and the model,
becomes ``new = average``, with the buffers and the mode of the model as in a copy. Refused unless each call of the
function replaces the old average by its result, ``ema = update(ema, net)``, and nothing else keeps the old one.
Values: none.
"""

from __future__ import annotations

from typing import cast

import libcst as cst

from perfwrap.edits.outcome import Edited, NothingThere, Refusal, Target
from perfwrap.edits.syntax.call_arguments import argument_of, is_method
from perfwrap.edits.syntax.names import free_name, is_stored, mentions, parameter_of, writes
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines, with_lines
from perfwrap.edits.syntax.value_origin import assigned_value

COPY = "copy.deepcopy"
UNDER = ("torch.no_grad", "torch.inference_mode")
KEEPS = ("eval", "train", "load_state_dict")
"""Methods of the average that keep nothing of it."""
SAVES = ("torch.save", "copy.deepcopy")
"""Functions that only read what they get."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source without the copy at the line, or in the function that the line calls; raises Refusal."""
    function, assign = _copy_at(source, target.line)
    assert isinstance(assign.value, cst.Call)
    new, model = source.code(assign.targets[0].target), source.code(assign.value.args[0].value)
    if not any(
        source.name(found.decorator.func if isinstance(found.decorator, cst.Call) else found.decorator)
        in UNDER
        for found in function.decorators
    ):
        raise Refusal(f"{function.name.value}() does not run without gradients.")
    old = _average(source, function, assign, new, model)
    _check_calls(source, function, old, model)
    statement = source.statement(assign)
    check_own_lines(source, statement)
    mine, given = free_name(source, "own"), free_name(source, "given")
    lines = [
        f"{new}.train({model}.training)",
        f"for {mine}, {given} in zip({new}.buffers(), {model}.buffers()):\n    {mine}.copy_({given})\n",
    ]
    changes: Changes = {
        assign.value: cst.Name(old),
        statement: with_lines(source, statement, [], lines),
    }
    return Edited(
        source.replaced(changes),
        f"Change {old} itself in {function.name.value}(), instead of the copy at line {source.line(assign)}.",
    )


def _copy_at(source: Source, line: int) -> tuple[cst.FunctionDef, cst.Assign]:
    """Return the assignment at a line that copies a model, or that of a function which the line or its loop calls."""
    names = {dotted_name(call.func) for call in source.at_line(line, cst.Call)}
    for loop in source.inside(source.module, cst.For, cst.While):
        if source.line(loop) <= line <= source.last_line(loop):
            names |= {dotted_name(call.func) for call in source.inside(loop.body, cst.Call)}
    for function in source.inside(source.module, cst.FunctionDef):
        for assign in source.inside(function.body, cst.Assign):
            is_here = source.line(assign) <= line <= source.last_line(assign) or function.name.value in names
            if is_here and _copied(source, assign) and source.scope(assign) is function:
                return cast(cst.FunctionDef, function), cast(cst.Assign, assign)
    raise NothingThere(f"Line {line} copies no model in a function.")


def _copied(source: Source, assign: cst.Assign) -> bool:
    """Return whether a variable gets a copy of another one."""
    value = assign.value
    return (
        isinstance(value, cst.Call)
        and source.name(value.func) == COPY
        and len(value.args) == 1
        and isinstance(value.args[0].value, cst.Name)
        and len(assign.targets) == 1
        and isinstance(assign.targets[0].target, cst.Name)
    )


def _average(source: Source, function: cst.FunctionDef, assign: cst.Assign, new: str, model: str) -> str:
    """Return the parameter with the old average, if the function sets all parameters of the copy and returns it."""
    body = list(function.body.body)
    place = next((index for index, found in enumerate(body) if source.is_inside(assign, found)), len(body))
    rest = body[place + 1 :]
    loop = rest[0] if len(rest) == 2 else None
    end = rest[1].body[0] if len(rest) == 2 and isinstance(rest[1], cst.SimpleStatementLine) else None
    if not isinstance(loop, cst.For) or not isinstance(end, cst.Return) or end.value is None:
        raise Refusal(f"{function.name.value}() does more than to set the copy and to return it.")
    if source.code(end.value) != new or loop.orelse is not None:
        raise Refusal(f"{function.name.value}() does not return the copy.")
    targets = (
        [element.value for element in loop.target.elements] if isinstance(loop.target, cst.Tuple) else []
    )
    zipped = (
        loop.iter.args if isinstance(loop.iter, cst.Call) and dotted_name(loop.iter.func) == "zip" else ()
    )
    owners = [source.code(found.value).removesuffix(".parameters()") for found in zipped]
    texts = [source.code(found.value) for found in zipped]
    others = {owner for owner in owners if owner not in (new, model)}
    if len(targets) != len(owners) or new not in owners or len(others) != 1:
        raise Refusal(f"The loop at line {source.line(loop)} does not go through the copy and an average.")
    (old,) = others
    if any(not text.endswith(".parameters()") for text in texts) or parameter_of(function, old) is None:
        raise Refusal(f"The loop at line {source.line(loop)} does not go through all parameters.")
    _check_sets(source, loop, source.code(targets[owners.index(new)]))
    for name in (new, old, model):
        if len(writes(source, function, name)) != (name == new):
            raise Refusal(f"{function.name.value}() sets {name} elsewhere.")
    if len(mentions(source, function.body, old)) != 1 or len(mentions(source, function.body, new)) != 3:
        raise Refusal(f"{function.name.value}() uses {old} or {new} elsewhere.")
    return old


def _check_sets(source: Source, loop: cst.For, each: str) -> None:
    """Refuse a loop that does not set each parameter of the copy, whatever it was: ``each.copy_(...)``."""
    body = loop.body.body
    small = body[0].body if len(body) == 1 and isinstance(body[0], cst.SimpleStatementLine) else ()
    call = small[0].value if len(small) == 1 and isinstance(small[0], cst.Expr) else None
    if (
        not isinstance(call, cst.Call)
        or not is_method(call, "copy_")
        or len(call.args) != 1
        or not isinstance(call.func, cst.Attribute)
        or source.code(call.func.value) not in (each, f"{each}.data")
        or mentions(source, call.args[0], each)
    ):
        raise Refusal(
            f"The loop at line {source.line(loop)} does more than to set the parameters of the copy."
        )


def _check_calls(source: Source, function: cst.FunctionDef, old: str, model: str) -> None:
    """Refuse unless each call replaces the old average, which began as a copy, and nothing else keeps it."""
    name = function.name.value
    place = [found.name.value for found in function.params.params].index(old)
    used = [node for node in source.inside(source.module, cst.Name) if node.value == name]
    calls = [found for found in map(source.parent, used) if isinstance(found, cst.Call)]
    if not calls or len(calls) + 1 != len(used):
        raise Refusal(f"{name}() is not only called.")
    for call in calls:
        given = argument_of(call, old, place)
        average = given.value if given is not None else None
        assign = source.parent(call)
        is_replaced = (
            isinstance(average, cst.Name)
            and isinstance(assign, cst.Assign)
            and [source.code(found.target) for found in assign.targets] == [average.value]
        )
        if not is_replaced:
            raise Refusal(f"The call of {name}() at line {source.line(call)} keeps the old average.")
        assert isinstance(average, cst.Name)
        _check_average(source, call, average.value)


def _check_average(source: Source, call: cst.Call, average: str) -> None:
    """Refuse an average that is no copy of its own at first, or that something else may keep."""
    scope = source.scope(call)
    for node in mentions(source, source.module, average):
        parent = source.parent(node)
        outer = source.parent(parent) if parent is not None else None
        if source.scope(node) is not scope:
            if source.is_inside(node, scope):
                raise Refusal(f"Line {source.line(node)} uses {average} in another function.")
        elif is_stored(source, node):
            value = assigned_value(source, node)
            is_copy = isinstance(value, cst.Call) and source.name(value.func) == COPY
            if value is not call and not is_copy:
                raise Refusal(f"Line {source.line(node)} sets {average} to something else than a copy.")
        elif isinstance(parent, cst.Call) and parent.func is node or source.is_inside(node, call):
            continue
        elif isinstance(parent, cst.Attribute) and isinstance(outer, cst.Call) and outer.func is parent:
            is_read = any(source.name(found.func) in SAVES for found in source.around(outer, cst.Call))
            if parent.attr.value not in KEEPS and not is_read:
                raise Refusal(f"Line {source.line(node)} calls {average}.{parent.attr.value}().")
        elif not any(source.name(found.func) in SAVES for found in source.around(node, cst.Call)):
            raise Refusal(f"Line {source.line(node)} may keep {average}.")

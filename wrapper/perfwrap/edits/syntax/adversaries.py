"""What a training loop of a generator and a discriminator does, by the names of its models and optimizers."""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.call_arguments import is_method, receiver
from perfwrap.edits.syntax.names import ingredients, read_names, stored_names, writes_anywhere
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.value_origin import assigned_value

DISCRIMINATOR = re.compile(
    r"(?i:disc|critic)|(^|[._])[dD]($|[._\d])|[a-z]_?D($|[._\d])|(^|[._])[dD]_|(?i:^d_?opt)"
)
GENERATOR = re.compile(r"(?i:gen)|(^|[._])[gG]($|[._\d])|[a-z]_?G($|[._\d])|(^|[._])[gG]_|(?i:^g_?opt)")


def is_of(name: str, role: re.Pattern[str]) -> bool:
    """Return whether a name is certainly of one role, and not of the other one."""
    other = GENERATOR if role is DISCRIMINATOR else DISCRIMINATOR
    return bool(role.search(name)) and not other.search(name)


def is_owned_by(source: Source, name: str, role: re.Pattern[str]) -> bool:
    """Return whether an optimizer, or a model, is certainly of one role: by its name, or by that of its only model."""
    if is_of(name, role):
        return True
    values = [assigned_value(source, node) for node in writes_anywhere(source, name)] if name else []
    models = [
        receiver(call)
        for value in values
        if value is not None
        for call in source.inside(value, cst.Call)
        if is_method(call, "parameters", "named_parameters")
    ]
    return bool(models) and all(is_of(model, role) for model in models)


def line_of_discriminator(source: Source, line: int) -> int:
    """Return the line of the discriminator's last call that a backward pass at a line goes through; else the line."""
    for backward in source.at_line(line, cst.Call):
        if not is_method(backward, "backward"):
            continue
        scope = source.scope(backward)
        used = ingredients(source, scope, read_names(source, backward))
        calls = [
            source.line(call)
            for call in source.inside(scope, cst.Call)
            if is_of(dotted_name(call.func), DISCRIMINATOR)
            and source.line(call) < line
            and stored_names(source, source.statement(call)) & used
        ]
        return calls[-1] if calls else line
    return line


def backward_after(source: Source, call: cst.Call, result: str) -> cst.Call:
    """Return the first backward pass behind a call; raises Refusal if it does not go through the call's result."""
    scope = source.scope(call)
    passes = [
        found
        for found in source.inside(scope, cst.Call)
        if is_method(found, "backward") and source.line(found) >= source.line(call)
    ]
    if not passes or result not in ingredients(source, scope, read_names(source, passes[0])):
        raise Refusal(f"No backward pass follows the call at line {source.line(call)}.")
    first: cst.Call = passes[0]
    return first


def check_steps(source: Source, backward: cst.Call, role: re.Pattern[str]) -> None:
    """Refuse a backward pass behind which not an optimizer of that role makes the first step."""
    for call in source.inside(source.scope(backward), cst.Call):
        if is_method(call, "step") and source.line(call) > source.line(backward):
            if is_owned_by(source, receiver(call), role):
                return
            raise Refusal(f"The step at line {source.line(call)} is not of the optimizer that was expected.")
    raise Refusal(f"No step follows the backward pass at line {source.line(backward)}.")


def check_cleared(source: Source, backward: cst.Call, role: re.Pattern[str]) -> None:
    """Refuse unless the gradients of a role are cleared between a backward pass and the next one.

    Then what this backward pass adds to them is never used.
    """
    scope = source.scope(backward)
    calls = [call for call in source.inside(scope, cst.Call) if is_method(call, "backward", "zero_grad")]
    place = next(index for index, call in enumerate(calls) if call is backward)
    # After the last call of a round the first ones follow, if it is a loop.
    following = calls[place + 1 :] + (calls[:place] if source.loop(backward) is not None else [])
    for call in following:
        if is_method(call, "backward"):
            break
        if is_owned_by(source, receiver(call), role):
            return
    if source.loop(backward) is None and not following and _clears_first(source, role):
        return
    raise Refusal("The gradients that this backward pass adds are not cleared before the next one.")


def _clears_first(source: Source, role: re.Pattern[str]) -> bool:
    """Return whether each function in which an optimizer of a role steps clears the gradients before it adds any."""
    steps = [
        call
        for call in source.inside(source.module, cst.Call)
        if is_method(call, "step") and is_owned_by(source, receiver(call), role)
    ]
    for step in steps:
        scope = source.scope(step)
        calls = [call for call in source.inside(scope, cst.Call) if is_method(call, "backward", "zero_grad")]
        first = next(
            (
                call
                for call in calls
                if is_method(call, "backward") or is_owned_by(source, receiver(call), role)
            ),
            None,
        )
        if first is None or is_method(first, "backward"):
            return False
    return bool(steps)

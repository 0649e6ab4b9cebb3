"""Computes no gradients of parameters that the only optimizer does not have: ``requires_grad_(False)`` behind it.

The optimizer gets parameters of parts of a model, which the same function calls or keeps. Refused: files that set
``requires_grad`` themselves, read or clip gradients, give an optimizer more parameters, have several optimizers, or
wrap models for several processes, and functions that return the model, which may then be trained elsewhere.
Values: none.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.backward.frozen_discriminator import WRAPPERS
from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import called_name, callee, find_call
from perfwrap.edits.syntax.names import free_name, ingredients, is_stored, mentions, read_names, writes
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, with_lines

OPTIMIZER = re.compile(r"Adam\w*|SGD|Adagrad|NAdam|RAdam|RMSprop|Adadelta|ASGD|Rprop|Adafactor|Lion|LBFGS")
GRADIENTS = re.compile(
    r"requires_grad\w*|grad|unscale_|clip_grad\w*|add_param_group|unfreeze\w*|register_\w*hook"
)
"""Names of methods, functions and attributes that read gradients, or decide who gets some."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source that freezes what the optimizer at the line does not train; raises Refusal."""
    call = find_call(source, target.line, lambda call: _is_optimizer(source, call), "an optimizer")
    _check_file(source, call)
    assign = source.parent(call)
    name = dotted_name(assign.targets[0].target) if isinstance(assign, cst.Assign) else ""
    if not name or not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        raise Refusal(f"The optimizer at line {source.line(call)} gets no name.")
    model = _model(source, call)
    statement = source.statement(call)
    trained, each = free_name(source, "trained"), free_name(source, "parameter")
    lines = [
        f'{trained} = {{id({each}) for group in {name}.param_groups for {each} in group["params"]}}',
        f"for {each} in {model}.parameters():\n"
        f"    {each}.requires_grad_({each}.requires_grad and id({each}) in {trained})\n",
    ]
    changes: Changes = {statement: with_lines(source, statement, [], lines)}
    return Edited(
        source.replaced(changes),
        f"Compute no gradients of the parameters of {model} that the optimizer at line {source.line(call)} does "
        "not have.",
    )


def _is_optimizer(source: Source, call: cst.Call) -> bool:
    return OPTIMIZER.fullmatch(callee(source, call)) is not None


def _check_file(source: Source, optimizer: cst.Call) -> None:
    """Refuse a file in which the other parameters may be trained, or their gradients be read."""
    for call in source.inside(source.module, cst.Call):
        if call is not optimizer and _is_optimizer(source, call):
            raise Refusal(f"Line {source.line(call)} makes another optimizer, which may train the rest.")
        if callee(source, call) in WRAPPERS:
            raise Refusal("The file wraps models for several processes.")
        if GRADIENTS.fullmatch(called_name(call)):
            raise Refusal(f"Line {source.line(call)} calls {called_name(call)}(), which needs all gradients.")
    for found in source.inside(source.module, cst.Attribute):
        if GRADIENTS.fullmatch(found.attr.value):
            raise Refusal(f"Line {source.line(found)} uses {found.attr.value}.")


def _model(source: Source, call: cst.Call) -> str:
    """Return the one model of whose parts the optimizer gets parameters; raises Refusal."""
    given = call.args[0].value if call.args else None
    if given is None:
        raise Refusal(f"The optimizer at line {source.line(call)} has no parameters.")
    scope = source.scope(call)
    parts = [name for name in ingredients(source, scope, read_names(source, given)) if "." in name]
    owners = {_owner(source, scope, part) for part in parts} - {""}
    if len(owners) != 1:
        raise Refusal(f"The optimizer at line {source.line(call)} does not get parts of one known model.")
    (model,) = owners
    if f"{model}.parameters" in parts:
        raise Refusal(f"The optimizer at line {source.line(call)} may have all parameters of {model}.")
    for found in source.inside(scope, cst.Return, cst.Yield):
        if mentions(source, found, model):
            raise Refusal(f"Line {source.line(found)} returns {model}, which may be trained elsewhere.")
    return model


def _owner(source: Source, scope: cst.CSTNode, part: str) -> str:
    """Return the model at the beginning of a dotted name, which the program calls: ``model`` of ``model.fc.weight``."""
    words = part.split(".")
    for count in range(1, len(words)):
        owner = ".".join(words[:count])
        is_called = any(dotted_name(call.func) == owner for call in source.inside(source.module, cst.Call))
        is_set = writes(source, scope, owner) or any(
            is_stored(source, found) and dotted_name(found) == owner
            for found in source.inside(source.module, cst.Attribute)
        )
        if is_called and is_set:
            return owner
    return ""

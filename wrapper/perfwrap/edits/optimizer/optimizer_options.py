"""Sets ``fused=True`` or ``foreach=True`` of an optimizer. Values: ``fused`` or ``foreach``, which is True."""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import (
    argument_of,
    find_call,
    literal,
    matches,
    unpacked,
    with_arguments,
    without_argument,
)
from perfwrap.edits.syntax.source_tree import Change, Source

FUSED = "Adam|AdamW|SGD|Adagrad"
FOREACH = f"{FUSED}|NAdam|RAdam|RMSprop|Adadelta|Adamax|ASGD|Rprop|Adafactor"
"""https://docs.pytorch.org/docs/stable/optim.html#algorithms"""
CALLEES = {"fused": re.compile(FUSED), "foreach": re.compile(FOREACH)}


def edit(source: Source, target: Target) -> Edited:
    """Return the source with the argument in the optimizer's call at the line; raises Refusal."""
    if dict(target.values) not in ({"fused": True}, {"foreach": True}):
        raise Refusal("The edit sets fused=True or foreach=True.")
    (keyword,) = target.values
    other = "foreach" if keyword == "fused" else "fused"
    call = find_call(
        source,
        target.line,
        lambda call: matches(source, call, CALLEES[keyword]),
        f"an optimizer with {keyword}",
    )
    _check_library(source, call)
    if unpacked(call):
        raise Refusal("The optimizer has unpacked arguments that may hold the same ones.")
    if argument_of(call, "differentiable") is not None:
        raise Refusal("The optimizer is differentiable.")
    if keyword == "fused" and re.search(r"\bsparse\s*=\s*True", source.module.code):
        raise Refusal("A fused optimizer does not take sparse gradients, which this file may make.")
    given = argument_of(call, keyword)
    contrary = argument_of(call, other)
    if given is not None and source.code(given.value) == "True":
        raise Refusal(f"The optimizer has {keyword}=True.")
    if given is not None and source.code(given.value) not in ("False", "None"):
        raise Refusal(f"{keyword} is {source.code(given.value)}.")

    changes: dict[cst.CSTNode, Change] = {}
    if given is not None:
        changes[given.value] = literal(True)

    def change(updated: cst.CSTNode) -> cst.Call:
        if contrary is not None:
            updated = without_argument(call, updated, contrary)
        return with_arguments(source, call, updated, {} if given is not None else {keyword: literal(True)})

    changes[call] = change
    instead = f" instead of {other}={source.code(contrary.value)}" if contrary is not None else ""
    return Edited(
        source.replaced(changes),
        f"Pass {keyword}=True to the optimizer at line {source.line(call)}{instead}.",
    )


def _check_library(source: Source, call: cst.Call) -> None:
    """Refuse an optimizer that the file defines itself, or imports from elsewhere than torch."""
    name = source.name(call.func)
    if any(found.name.value == name for found in source.inside(source.module, cst.ClassDef, cst.FunctionDef)):
        raise Refusal(f"{name} is not an optimizer of torch.optim, but of this file.")
    module = name.rpartition(".")[0]
    if module and not module.startswith("torch.optim"):
        raise Refusal(f"{name} is not an optimizer of torch.optim.")

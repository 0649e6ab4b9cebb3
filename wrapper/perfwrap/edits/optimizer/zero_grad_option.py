"""Removes ``set_to_none=False`` from ``zero_grad()``: gradients are then freed instead of filled with zeros.

It refuses where the loop reads gradients that it does not compare with None, because they are None until the
backward pass. Values: none.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import argument_of, find_call, is_method, without_argument
from perfwrap.edits.syntax.source_tree import Source

NONE = re.compile(r"\.grad\s+is\s+(not\s+)?None")


def edit(source: Source, target: Target) -> Edited:
    """Return the source without ``set_to_none=False`` in the call at the line; raises Refusal."""
    call = find_call(source, target.line, lambda call: is_method(call, "zero_grad"), "zero_grad()")
    given = argument_of(call, "set_to_none", 0)
    if given is None or source.code(given.value) == "True":
        raise Refusal("zero_grad() sets the gradients to None.")
    if source.code(given.value) != "False":
        raise Refusal(f"set_to_none is {source.code(given.value)}.")
    scope = source.scope(call)
    for node in source.inside(scope, cst.Attribute):
        if node.attr.value == "grad" and not NONE.search(source.code(source.statement(node))):
            raise Refusal(
                f"Line {source.line(node)} reads a gradient, which would be None after zero_grad()."
            )
    return Edited(
        source.replaced({call: lambda updated: without_argument(call, updated, given)}),
        f"Remove set_to_none=False from zero_grad() at line {source.line(call)}.",
    )

"""Passes ``validate_args=False`` to the distributions of torch that are made at the line.

Refused: a file that catches ValueError around the line, because the check may be what it expects. Values: none.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import argument_of, literal, unpacked, with_arguments
from perfwrap.edits.syntax.source_tree import Change, Source

MADE = re.compile(r"torch\.distributions\.((?!transforms|constraints)\w+\.)?(?!\w*Transform\b)[A-Z]\w*")
"""Classes of distributions: those of transforms and constraints do not have the argument."""
ARGUMENT = "validate_args"


def edit(source: Source, target: Target) -> Edited:
    """Return the source with the argument in each distribution of the line; raises Refusal."""
    calls = [call for call in source.at_line(target.line, cst.Call) if MADE.fullmatch(source.name(call.func))]
    if not calls:
        raise Refusal(f"Line {target.line} makes no distribution of torch.")
    if any(argument_of(call, ARGUMENT) is not None or unpacked(call) for call in calls):
        raise Refusal(f"The distribution has {ARGUMENT}, or unpacked arguments that may hold it.")
    if any(_catches_errors(source, node) for node in source.around(calls[0], cst.Try)):
        raise Refusal(f"Line {target.line} is in a try block that may expect the error of a check.")
    changes: dict[cst.CSTNode, Change] = {call: _unchecked(source, call) for call in calls}
    what = "the distribution" if len(calls) == 1 else f"the {len(calls)} distributions"
    return Edited(source.replaced(changes), f"Pass {ARGUMENT}=False to {what} at line {target.line}.")


def _unchecked(source: Source, call: cst.Call) -> Change:
    return lambda updated: with_arguments(source, call, updated, {ARGUMENT: literal(False)})


def _catches_errors(source: Source, node: cst.Try) -> bool:
    """Return whether a try block catches what a check raises."""
    kinds = [handler.type for handler in node.handlers]
    return any(
        kind is None or re.search(r"\b(ValueError|Exception|BaseException)\b", source.code(kind))
        for kind in kinds
    )

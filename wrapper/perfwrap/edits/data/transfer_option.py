"""Sets ``non_blocking=True`` in a call of ``.to()`` or ``.cuda()``. Values: none."""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import (
    argument_of,
    called_name,
    find_call,
    is_method,
    literal,
    unpacked,
    with_arguments,
)
from perfwrap.edits.syntax.source_tree import Change, Source


def edit(source: Source, target: Target) -> Edited:
    """Return the source with the argument in the call at the line; raises Refusal."""
    call = find_call(source, target.line, lambda call: is_method(call, "to", "cuda"), ".to() or .cuda()")
    if unpacked(call):
        raise Refusal("The call has unpacked arguments that may hold the same one.")
    given = argument_of(call, "non_blocking")
    # In both methods other arguments may stand before it: ``to(device, dtype, non_blocking)``.
    if given is None and sum(argument.keyword is None for argument in call.args) > 1:
        raise Refusal("The call may pass non_blocking by its position.")
    changes: dict[cst.CSTNode, Change] = {}
    if given is None:
        wanted = {"non_blocking": literal(True)}
        changes[call] = lambda updated: with_arguments(source, call, updated, wanted)
    elif source.code(given.value) == "False":
        changes[given.value] = literal(True)
    else:
        raise Refusal(f"non_blocking is {source.code(given.value)}.")
    return Edited(
        source.replaced(changes),
        f"Pass non_blocking=True to {called_name(call)}() at line {source.line(call)}.",
    )

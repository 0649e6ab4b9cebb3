"""Removes a call of ``torch.cuda.empty_cache()`` or ``gc.collect()`` that runs in the training loop. Values: none."""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import find_call
from perfwrap.edits.syntax.source_tree import Source
from perfwrap.edits.syntax.statements import without_statement

NAMES = tuple(f"torch.{device}.empty_cache" for device in ("cuda", "mps", "xpu", "accelerator.memory"))
CLEANUPS = (*NAMES, "torch.cuda.ipc_collect", "gc.collect")


def edit(source: Source, target: Target) -> Edited:
    """Return the source without the call at the line; raises Refusal."""
    call = find_call(
        source, target.line, lambda call: source.name(call.func) in CLEANUPS, "empty_cache() or gc.collect()"
    )
    name, line = source.code(call.func), source.line(call)
    parent = source.parent(call)
    if not isinstance(parent, cst.Expr):
        raise Refusal(f"What {name}() returns at line {line} is used.")
    if source.loop(call) is None and isinstance(source.scope(call), cst.Module):
        raise Refusal(f"{name}() at line {line} runs once.")
    return Edited(without_statement(source, parent), f"Remove the call of {name}() at line {line}.")

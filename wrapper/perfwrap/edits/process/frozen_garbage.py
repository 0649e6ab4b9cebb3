"""Takes what exists before the training out of garbage collection: ``gc.freeze()`` before a loop. Values: none."""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.source_tree import Source
from perfwrap.edits.syntax.statements import Changes, module_name, with_lines


def edit(source: Source, target: Target) -> Edited:
    """Return the source with the calls before the outermost loop around the line; raises Refusal."""
    if any(source.name(call.func) == "gc.freeze" for call in source.inside(source.module, cst.Call)):
        raise Refusal("The file calls gc.freeze().")
    loops = [
        loop
        for loop in source.inside(source.module, cst.For, cst.While)
        if source.line(loop) <= target.line <= source.last_line(loop)
    ]
    if not loops:
        raise Refusal(f"Line {target.line} is not in a loop.")
    # Only loops of the innermost function: an outer one defines it anew in each round.
    loop = next(loop for loop in loops if source.scope(loop) is source.scope(loops[-1]))
    changes: Changes = {}
    gc = module_name(source, "gc", changes)
    if loop in changes:
        raise Refusal("The loop is the first statement of the file.")
    changes[loop] = with_lines(source, loop, [f"{gc}.collect()", f"{gc}.freeze()"], [])
    return Edited(source.replaced(changes), f"Call gc.freeze() before the loop at line {source.line(loop)}.")

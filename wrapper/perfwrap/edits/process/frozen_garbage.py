"""Takes what exists before the training out of garbage collection: ``gc.freeze()`` before a loop.

Values: ``rare`` is True to run full collections only after 1,000 of the second generation instead of 10, too: objects
that the loop makes and keeps are then visited less often. Reference cycles that live long are freed later. Python 3.14
ignores this number.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.source_tree import Source
from perfwrap.edits.syntax.statements import Changes, module_name, with_lines

RARE = 1000
"""Collections of the second generation until a full one; Python's default is 10."""


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
    lines = [f"{gc}.collect()", f"{gc}.freeze()"]
    rare = ""
    if target.values.get("rare"):
        lines.append(f"{gc}.set_threshold(*{gc}.get_threshold()[:2], {RARE})")
        rare = " and make full collections 100 times as rare"
    changes[loop] = with_lines(source, loop, lines, [])
    where = f"before the loop at line {source.line(loop)}"
    return Edited(source.replaced(changes), f"Call gc.freeze(){rare} {where}.")

"""Sets the number of compute threads: ``torch.set_num_threads(N)`` before the statement at the line.

Refused: a file that sets it already, and statements in a loop. Values: ``threads``, e.g. 1.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.source_tree import Source
from perfwrap.edits.statements import Changes, module_name, with_lines

FUNCTION = "set_num_threads"


def edit(source: Source, target: Target) -> Edited:
    """Return the source that sets the number before the statement at the line; raises Refusal."""
    threads = target.values.get("threads")
    if not isinstance(threads, int) or threads < 1:
        raise Refusal("The edit needs threads=N.")
    if any(source.name(call.func).endswith(FUNCTION) for call in source.inside(source.module, cst.Call)):
        raise Refusal(f"The file calls {FUNCTION}().")
    found = source.at_line(target.line, cst.SimpleStatementLine)
    if not found:
        raise Refusal(f"Line {target.line} is no statement of its own.")
    statement = found[-1]
    if source.loop(statement) is not None:
        raise Refusal(f"Line {target.line} is in a loop.")
    changes: Changes = {}
    torch = module_name(source, "torch", changes)
    if statement in changes:
        raise Refusal(f"Line {target.line} is the first statement of the file.")
    changes[statement] = with_lines(source, statement, [f"{torch}.{FUNCTION}({threads})"], [])
    return Edited(
        source.replaced(changes), f"Call torch.{FUNCTION}({threads}) before line {source.line(statement)}."
    )

"""Sets the number of compute threads: ``torch.set_num_threads(N)`` before the statement at the line.

If that line calls it with a number or with what it computes there, that is replaced. Refused: a file that calls it
elsewhere, and statements in a loop. Values: ``threads``, e.g. 1.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.source_tree import Source
from perfwrap.edits.syntax.statements import Changes, module_name, with_lines

FUNCTION = "set_num_threads"


def edit(source: Source, target: Target) -> Edited:
    """Return the source that sets the number before the statement at the line; raises Refusal."""
    threads = target.values.get("threads")
    if not isinstance(threads, int) or threads < 1:
        raise Refusal("The edit needs threads=N.")
    calls = [
        call
        for call in source.inside(source.module, cst.Call)
        if source.name(call.func).rpartition(".")[2] == FUNCTION
    ]
    if len(calls) == 1 and source.line(calls[0]) == target.line:
        return _changed(source, calls[0], threads)
    if calls:
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


def _changed(source: Source, call: cst.Call, threads: int) -> Edited:
    """Return the source in which a call has another number."""
    given = call.args[0].value if len(call.args) == 1 else None
    # A name alone is an option, or is used for something else, too.
    if not isinstance(given, cst.Integer | cst.BinaryOperation | cst.Call) or source.code(given) == str(
        threads
    ):
        raise Refusal(f"The file calls {FUNCTION}() with another value than a number to change.")
    before = " ".join(source.code(given).split())
    return Edited(
        source.replaced({given: cst.Integer(str(threads))}),
        f"Call {FUNCTION}({threads}) instead of {FUNCTION}({before}) at line {source.line(call)}.",
    )

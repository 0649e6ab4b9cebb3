"""Prints and logs in every Nth round of a loop: puts the statement at the line under ``if step % N == 0:``.

The round is counted by ``enumerate``, which the loop has or gets. Refused: statements that do more than
print and log. Values: ``every``, e.g. 50.
"""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import called_name, is_method, receiver
from perfwrap.edits.syntax.counted_rounds import counter_of, under_condition
from perfwrap.edits.syntax.read_values import is_now_and_then
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines

OWN_METHODS = (
    *("add_scalar", "add_scalars", "add_histogram"),
    *("set_description", "set_description_str", "set_postfix", "set_postfix_str"),
)
"""Methods that only TensorBoard's writers and progress bars have, whatever their variables are called."""
METHODS = ("write", "info", "debug", "warning", "log", "print")
LOGGERS = (
    *("wandb", "logging", "logger", "log", "writer", "tb", "summary_writer", "accelerator"),
    *("pbar", "tqdm", "bar", "progress_bar", "stdout", "stderr", "console"),
)
"""The last name of what has such a method."""


READING = (
    *("float", "int", "str", "len", "round", "max", "min", "sum", "sorted", "abs", "format", "repr"),
    *("range", "zip", "list", "tuple", "dict", "set", "type"),
)
"""Functions that only return a value."""
CHANGING = (
    "backward",
    "step",
    "update",
    "append",
    "pop",
    "popitem",
    "add",
    "write",
    "reset",
    "zero_grad",
    "next",
)
"""Methods that do more."""


def edit(source: Source, target: Target) -> Edited:
    """Return the source that logs in every Nth round; raises Refusal."""
    every = target.values.get("every")
    if not isinstance(every, int) or every < 2:
        raise Refusal("The edit needs every=N, of at least 2.")
    statement = _statement_at(source, target.line)
    loop = source.loop(statement)
    if not isinstance(loop, cst.For) or loop.asynchronous is not None:
        raise Refusal(f"Line {target.line} is not in a for loop.")
    if is_now_and_then(source, statement, loop):
        raise Refusal(f"Line {target.line} runs only in some rounds.")
    check_own_lines(source, statement)
    changes: Changes = {}
    step = counter_of(source, loop, changes)
    changes[statement] = under_condition(source, f"{step} % {every} == 0")
    return Edited(
        source.replaced(changes),
        f"Run line {source.line(statement)} in every {every}th round of the loop only.",
    )


def _statement_at(source: Source, line: int) -> cst.SimpleStatementLine:
    """Return the statement that logs at a line."""
    found = [
        node
        for node in source.inside(source.module, cst.SimpleStatementLine)
        if source.line(node) <= line <= source.last_line(node)
    ]
    if len(found) != 1 or len(found[0].body) != 1:
        raise Refusal(f"Line {line} is not one statement.")
    (only,) = found[0].body
    if not isinstance(only, cst.Expr) or not isinstance(only.value, cst.Call) or not _logs(only.value):
        raise Refusal(f"Line {line} does more than print or log, as far as known.")
    if any(source.inside(only, cst.NamedExpr, cst.Await, cst.Yield)):
        raise Refusal(f"Line {line} does more than print or log.")
    for call in source.inside(only, cst.Call):
        if call is not only.value and not _only_reads(source, call):
            raise Refusal(
                f"Line {line} calls {source.code(call.func)}(), which may do more than to return a value."
            )
    statement: cst.SimpleStatementLine = found[0]
    return statement


def _logs(call: cst.Call) -> bool:
    """Return whether a call only prints or logs."""
    if dotted_name(call.func) == "print":
        return True
    if is_method(call, *OWN_METHODS):
        return True
    owner = receiver(call).rpartition(".")[2].lstrip("_").lower()
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in METHODS and owner in LOGGERS


def _only_reads(source: Source, call: cst.Call) -> bool:
    """Return whether a call inside of the statement only returns a value, as far as its name says."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value not in CHANGING
    return called_name(call) in READING

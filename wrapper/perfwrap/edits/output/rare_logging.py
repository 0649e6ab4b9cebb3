"""Prints and logs in every Nth round of a loop: puts the statement at the line under ``if step % N == 0:``.

An inner loop that does nothing but log is put there as a whole, as is a call of a function that only logs. The round is
counted by ``enumerate``, which the loop has or gets, or by the ``step += 1`` of a ``while`` loop. Refused: statements
that do more than print and log. Values: ``every``, e.g. 50.
"""

from __future__ import annotations

import contextlib

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import called_name, is_method, receiver
from perfwrap.edits.syntax.callers import only_caller
from perfwrap.edits.syntax.counted_rounds import counter_of, counting, under_condition
from perfwrap.edits.syntax.names import reads, stored_names
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


MOST_LEVELS = 8
"""Loops and calls that are followed from a statement outwards."""
READING = (
    *("float", "int", "str", "len", "round", "max", "min", "sum", "sorted", "abs", "format", "repr"),
    *("range", "zip", "enumerate", "list", "tuple", "dict", "set", "type"),
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
    statement = _in_rounds(source, _statement_at(source, target.line))
    loop = source.loop(statement)
    if loop is None or (isinstance(loop, cst.For) and loop.asynchronous is not None):
        raise Refusal(f"Line {source.line(statement)} is not in a loop.")
    if is_now_and_then(source, statement, loop):
        raise Refusal(f"Line {source.line(statement)} runs only in some rounds.")
    check_own_lines(source, statement)
    changes: Changes = {}
    step = counter_of(source, loop, changes) if isinstance(loop, cst.For) else _counter(source, loop)
    changes[statement] = under_condition(source, f"{step} % {every} == 0")
    what = "the loop at line" if isinstance(statement, cst.For) else "line"
    return Edited(
        source.replaced(changes),
        f"Run {what} {source.line(statement)} in every {every}th round of the loop "
        f"{'around it ' if isinstance(statement, cst.For) else ''}only.",
    )


def _counter(source: Source, loop: cst.While) -> str:
    """Return the variable that counts the rounds of a ``while`` loop; raises Refusal."""
    for found in source.inside(loop.body, cst.AugAssign):
        name = dotted_name(found.target)
        if name and source.loop(found) is loop:
            with contextlib.suppress(Refusal):
                counting(source, loop, name)
                return name
    raise Refusal(f"The loop at line {source.line(loop)} does not count its rounds.")


def _in_rounds(source: Source, statement: cst.SimpleStatementLine) -> cst.SimpleStatementLine | cst.For:
    """Return what to run rarely: the statement, the loop that only logs around it, or the call that leads to it."""
    found: cst.SimpleStatementLine | cst.For = statement
    best: cst.SimpleStatementLine | cst.For | None = None
    for _ in range(MOST_LEVELS):
        loop = source.loop(found)
        if loop is None:
            try:
                found = only_caller(
                    source, found, lambda call: _logs(call) or _only_reads(source, call), "log"
                )
            except Refusal:
                if best is None:
                    raise
                return best
        elif isinstance(loop, cst.For) and _only_logs(source, loop, found):
            best, found = best or found, loop
        else:
            return found
    return best or found


def _only_logs(source: Source, loop: cst.For, statement: cst.BaseStatement) -> bool:
    """Return whether a loop does nothing but log: without it, everything else stays."""
    items = loop.iter
    if (
        loop.asynchronous is not None
        or loop.orelse is not None
        or not isinstance(items, cst.Call | cst.Name | cst.Attribute)
        or not all(_only_reads(source, call) for call in source.inside(items, cst.Call))
        or not all(each is statement or _is_log(source, each) for each in loop.body.body)
    ):
        return False
    used = [
        node for name in stored_names(source, loop.target) for node in reads(source, source.scope(loop), name)
    ]
    return all(source.is_inside(node, loop) for node in used)


def _is_log(source: Source, statement: cst.CSTNode) -> bool:
    """Return whether a statement is nothing but a log line."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    try:
        _check_log(source, statement)
    except Refusal:
        return False
    return True


def _statement_at(source: Source, line: int) -> cst.SimpleStatementLine:
    """Return the statement that logs at a line."""
    found = [
        node
        for node in source.inside(source.module, cst.SimpleStatementLine)
        if source.line(node) <= line <= source.last_line(node)
    ]
    if len(found) != 1 or len(found[0].body) != 1:
        raise Refusal(f"Line {line} is not one statement.")
    statement: cst.SimpleStatementLine = found[0]
    _check_log(source, statement)
    return statement


def _check_log(source: Source, statement: cst.SimpleStatementLine) -> None:
    """Refuse a statement that does more than to log."""
    line = source.line(statement)
    only = statement.body[0]
    if not isinstance(only, cst.Expr) or not isinstance(only.value, cst.Call) or not _logs(only.value):
        raise Refusal(f"Line {line} does more than print or log, as far as known.")
    if any(source.inside(only, cst.NamedExpr, cst.Await, cst.Yield)):
        raise Refusal(f"Line {line} does more than print or log.")
    for call in source.inside(only, cst.Call):
        if call is not only.value and not _only_reads(source, call):
            raise Refusal(
                f"Line {line} calls {source.code(call.func)}(), which may do more than to return a value."
            )


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

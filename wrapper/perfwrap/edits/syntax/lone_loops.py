"""A loop that counts through a length, or nested ones with nothing in between, and its straight-line body."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.source_tree import Source, dotted_name


class LoneLoops(NamedTuple):
    """Nested loops, the outermost first."""

    all: list[cst.For]
    counters: list[str]
    lengths: list[cst.BaseExpression]
    body: list[cst.SimpleStatementLine]
    """The statements of the innermost loop: plain assignments, and the last one."""


def find_loops(source: Source, line: int) -> LoneLoops:
    """Return the outermost loops around a line that do nothing but to count and to run one body; raises Refusal."""
    loops = [_loop_at(source, line)]
    while isinstance(only := _only(loops[-1]), cst.For):
        loops.append(only)
    while isinstance(outer := source.loop(loops[0]), cst.For) and _only(outer) is loops[0] and _counts(outer):
        loops.insert(0, outer)
    for loop in loops:
        if not _counts(loop):
            raise Refusal(f"The loop at line {source.line(loop)} does not count from zero to a length.")
    body = list(loops[-1].body.body)
    for statement in body:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            raise Refusal(f"Line {source.line(statement)} is not one simple statement.")
        if statement is not body[-1] and not isinstance(statement.body[0], cst.Assign):
            raise Refusal(f"Line {source.line(statement)} does more than to set variables of the round.")
    return LoneLoops(
        loops,
        [source.code(loop.target) for loop in loops],
        [loop.iter.args[0].value for loop in loops if isinstance(loop.iter, cst.Call)],
        [statement for statement in body if isinstance(statement, cst.SimpleStatementLine)],
    )


def _loop_at(source: Source, line: int) -> cst.For:
    """Return the innermost loop around a line, or around the only call in a loop of the function that it is in."""
    loops = [found for found in source.inside(source.module, cst.For) if _spans(source, found, line)]
    if loops:
        found: cst.For = loops[-1]
        return found
    functions = [
        found for found in source.inside(source.module, cst.FunctionDef) if _spans(source, found, line)
    ]
    for function in functions[-1:]:
        calls = [
            source.loop(call)
            for call in source.inside(source.module, cst.Call)
            if dotted_name(call.func) == function.name.value
        ]
        around = [loop for loop in calls if isinstance(loop, cst.For)]
        if len(around) == 1:
            return around[0]
    raise Refusal(f"Line {line} is not in a for loop.")


def _spans(source: Source, node: cst.CSTNode, line: int) -> bool:
    return source.line(node) <= line <= source.last_line(node)


def _only(loop: cst.For) -> cst.BaseStatement | None:
    """Return the only statement of a loop."""
    body = loop.body.body
    return body[0] if len(body) == 1 and isinstance(body[0], cst.BaseStatement) else None


def _counts(loop: cst.For) -> bool:
    """Return whether a loop is ``for i in range(length):``."""
    counted = loop.iter
    return (
        loop.orelse is None
        and loop.asynchronous is None
        and isinstance(loop.body, cst.IndentedBlock)
        and isinstance(loop.target, cst.Name)
        and isinstance(counted, cst.Call)
        and dotted_name(counted.func) == "range"
        and len(counted.args) == 1
        and not counted.args[0].star
    )

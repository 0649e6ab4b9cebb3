"""Computes a call once that is made twice with the same arguments in one block: the second one uses the first result.

Refused: anything in between that may change the result (new values of what it uses, an optimizer's step, another
mode), a backward pass in between, which frees the graph, and files with dropout or batch normalisation, whose second
call is another one. Values: none.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.blocks import block_of, index_in, is_unchanged_between
from perfwrap.edits.syntax.call_arguments import is_method
from perfwrap.edits.syntax.names import free_name, read_names
from perfwrap.edits.syntax.source_tree import Source
from perfwrap.edits.syntax.statements import Changes, with_lines

LAYERS = re.compile(r"(?i)\bdropout|batch_?norm")
RANDOM = re.compile(r"(?i)rand|sampl|noise|normal|next|pop|read|recv|perf_counter|time\.|input\(")
"""What a call that may return something else each time has in its text."""
CHANGING = (
    "step",
    "backward",
    "train",
    "eval",
    "requires_grad_",
    "half",
    "to",
    "load_state_dict",
    "zero_grad",
)


def edit(source: Source, target: Target) -> Edited:
    """Return the source in which the call at the line uses the earlier result; raises Refusal."""
    if LAYERS.search(source.module.code):
        raise Refusal("A second call may have another result: the file has dropout or batch normalisation.")
    first, second = _pair_at(source, target.line)
    if RANDOM.search(source.code(second)):
        raise Refusal(f"{source.code(second.func)}() may have another result each time.")
    block = block_of(source, source.statement(first))
    begin, end = index_in(source, block, first), index_in(source, block, second)
    assert begin is not None and end is not None
    if not is_unchanged_between(source, read_names(source, second), first, second):
        raise Refusal(
            f"What the call at line {source.line(second)} uses changes after line {source.line(first)}."
        )
    for statement in block[begin : end + 1]:
        for call in source.inside(statement, cst.Call):
            if is_method(call, *CHANGING) and source.line(call) <= source.line(second) and call is not second:
                raise Refusal(f"Line {source.line(call)} calls {source.code(call.func)}() between the two.")
    statement = source.statement(first)
    assign = source.parent(first)
    changes: Changes = {}
    if isinstance(assign, cst.Assign) and isinstance(assign.targets[0].target, cst.Name):
        name = assign.targets[0].target.value
        if not is_unchanged_between(source, [name], first, second, with_first=False):
            raise Refusal(f"{name} changes after line {source.line(first)}.")
    else:
        if not isinstance(statement, cst.SimpleStatementLine):
            raise Refusal(f"The call at line {source.line(first)} is not in a simple statement.")
        name = free_name(source, "output")
        added = with_lines(source, statement, [f"{name} = {source.code(first)}"], [])
        changes = {first: cst.Name(name), statement: added}
    changes[second] = cst.Name(name)
    return Edited(
        source.replaced(changes),
        f"Use the result of line {source.line(first)} at line {source.line(second)} instead of computing it again.",
    )


def _pair_at(source: Source, line: int) -> tuple[cst.Call, cst.Call]:
    """Return the largest call at a line that an earlier statement of its block also makes, with that one."""
    for second in source.inside(source.module, cst.Call):
        if source.line(second) != line or len(second.args) == 0:
            continue
        statement = source.statement(second)
        block = block_of(source, statement)
        place = index_in(source, block, statement) or 0
        text = source.code(second)
        for earlier in reversed(block[:place]):
            if isinstance(earlier, cst.BaseCompoundStatement):
                continue
            for first in source.inside(earlier, cst.Call):
                if source.code(first) == text and not isinstance(source.parent(first), cst.Expr):
                    return first, second
    raise Refusal(f"Line {line} has no call that an earlier line of its block makes, too.")

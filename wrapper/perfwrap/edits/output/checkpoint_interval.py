"""Saves checkpoints in every Nth round of a loop, and in the last one: ``torch.save`` under an ``if``.

The loop must count its rounds with ``range(n)``, or with ``enumerate`` of something that has a length, and must not end
early, so that the last round is known. Values: ``every``, e.g. 5.
"""

from __future__ import annotations

import re

import libcst as cst

from perfwrap.edits.outcome import Edited, Refusal, Target
from perfwrap.edits.syntax.call_arguments import find_call, is_method
from perfwrap.edits.syntax.counted_rounds import counter_of, under_condition
from perfwrap.edits.syntax.source_tree import Source, dotted_name
from perfwrap.edits.syntax.statements import Changes, check_own_lines

SAVES = ("torch.save", "safetensors.torch.save_file", "torch.distributed.checkpoint.save")
METHODS = ("save_pretrained", "save_checkpoint", "save_state", "save_weights")


def edit(source: Source, target: Target) -> Edited:
    """Return the source that saves at the line in every Nth round; raises Refusal."""
    every = target.values.get("every")
    if not isinstance(every, int) or every < 2:
        raise Refusal("The edit needs every=N, of at least 2.")
    call = find_call(
        source,
        target.line,
        lambda call: source.name(call.func) in SAVES or is_method(call, *METHODS),
        "a function that saves",
    )
    statement = source.statement(call)
    is_alone = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
    if not is_alone or not isinstance(source.parent(call), cst.Expr):
        raise Refusal(f"Line {target.line} does more than save.")
    check_own_lines(source, statement)
    loop = source.loop(statement)
    if not isinstance(loop, cst.For) or loop.asynchronous is not None:
        raise Refusal(f"Line {target.line} is not in a for loop.")
    if any(source.loop(found) is loop for found in source.inside(loop, cst.Break)) or any(
        source.inside(loop, cst.Return)
    ):
        raise Refusal(f"The loop at line {source.line(loop)} may end early, and its last round must save.")
    changes: Changes = {}
    last = _last_round(source, loop)
    step = counter_of(source, loop, changes)
    outer = [found for found in source.around(statement, cst.If) if source.is_inside(found, loop)]
    if outer:
        return _longer(source, outer, step, last, every)
    changes[statement] = under_condition(source, f"({step} + 1) % {every} == 0 or {step} + 1 == {last}")
    return Edited(
        source.replaced(changes),
        f"Save at line {source.line(statement)} in every {every}th round of the loop and in the last one.",
    )


def _longer(source: Source, outer: list[cst.If], step: str, last: str, every: int) -> Edited:
    """Return the source in which ``if step % 5 == 4`` around the line has an interval that is longer."""
    test = outer[0].test
    found = re.fullmatch(rf"\(?{re.escape(step)}( \+ 1)?\)? % (\d+) == (\d+)", source.code(test))
    if len(outer) > 1 or found is None or outer[0].orelse is not None:
        raise Refusal(f"Line {source.line(outer[0])} has another condition than a number of rounds.")
    shift, interval, rest = found[1] or "", int(found[2]), int(found[3])
    rest = interval * every - 1 if rest == interval - 1 and rest else rest
    name = f"({step}{shift})" if shift else step
    new = cst.parse_expression(f"{name} % {interval * every} == {rest} or {step} + 1 == {last}")
    return Edited(
        source.replaced({test: new}),
        f"Save in every {interval * every}th round instead of every {interval}th, and in the last one: the condition "
        f"at line {source.line(test)}.",
    )


def _last_round(source: Source, loop: cst.For) -> str:
    """Return the expression of how many rounds a loop has."""
    head = loop.iter
    if isinstance(head, cst.Call) and len(head.args) == 1 and head.args[0].keyword is None:
        inner = head.args[0].value
        if dotted_name(head.func) in ("range", "trange") and isinstance(
            inner, cst.Name | cst.Attribute | cst.Integer
        ):
            return source.code(inner)
        if dotted_name(head.func) == "enumerate" and isinstance(inner, cst.Name | cst.Attribute):
            return f"len({source.code(inner)})"
    raise Refusal(f"The loop at line {source.line(loop)} does not say how many rounds it has.")

"""Counts the rounds of a loop, and runs a statement only in some of them."""

from __future__ import annotations

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.names import free_name, writes, writes_anywhere
from perfwrap.edits.syntax.source_tree import Change, Result, Source, dotted_name
from perfwrap.edits.syntax.statements import Changes


def under_condition(source: Source, test: str) -> Change:
    """Return a change that puts a statement of its own lines under ``if test:``; comments above it stay above."""

    def change(updated: cst.CSTNode) -> Result:
        assert isinstance(updated, cst.SimpleStatementLine | cst.For)
        block = source.parse(f"if {test}:\n    pass\n")
        assert isinstance(block, cst.If)
        body = block.body.with_changes(body=[updated.with_changes(leading_lines=[])])
        return block.with_changes(leading_lines=updated.leading_lines, body=body)

    return change


def counter_of(source: Source, loop: cst.For, changes: Changes) -> str:
    """Return the variable that counts the rounds, and have ``enumerate`` count them if none does."""
    if isinstance(loop.iter, cst.Call) and dotted_name(loop.iter.func) in ("enumerate", "range", "trange"):
        target: cst.BaseExpression = loop.target
        if dotted_name(loop.iter.func) == "enumerate" and isinstance(target, cst.Tuple):
            target = target.elements[0].value
        if not isinstance(target, cst.Name) or target.value == "_":
            raise Refusal(f"The loop at line {source.line(loop)} does not name its counter.")
        if any(
            source.is_inside(node, loop.body) for node in writes(source, source.scope(loop), target.value)
        ):
            raise Refusal(f"The loop at line {source.line(loop)} changes its counter.")
        return target.value
    step = free_name(source, "step")
    inner: cst.BaseExpression = loop.target
    if isinstance(inner, cst.Tuple) and not inner.lpar:
        inner = inner.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    pair = [
        cst.Element(cst.Name(step), cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))),
        cst.Element(inner),
    ]
    changes[loop.target] = cst.Tuple(pair, lpar=[], rpar=[])
    changes[loop.iter] = cst.Call(cst.Name("enumerate"), [cst.Arg(loop.iter)])
    return step


def counting(source: Source, loop: cst.While, step: str) -> cst.AugAssign:
    """Return the ``step += 1`` that counts the rounds of a loop, the only change of it after the start; raises Refusal.

    ``step`` may be an attribute, such as ``self.step``.
    """
    found = writes_anywhere(source, step)
    inside = [node for node in found if source.is_inside(node, loop)]
    counts = source.parent(inside[0]) if len(inside) == 1 else None
    if (
        not isinstance(counts, cst.AugAssign)
        or not isinstance(counts.operator, cst.AddAssign)
        or source.code(counts.value) != "1"
        or source.parent(source.statement(counts)) is not loop.body
        or any(source.loop(each) is loop for each in source.inside(loop, cst.Continue))
    ):
        raise Refusal(f"The loop at line {source.line(loop)} does not count its rounds by {step} += 1.")
    for node in found:
        scope = source.scope(node)
        made = next(source.around(node, cst.BaseSmallStatement, cst.BaseStatement), None)
        starts = isinstance(made, cst.Assign | cst.AnnAssign) and (
            scope is source.scope(loop)
            or (isinstance(scope, cst.FunctionDef) and scope.name.value == "__init__")
            or "." not in step
        )
        if node is not inside[0] and not starts:
            raise Refusal(f"{step} is also set at line {source.line(node)}.")
    return counts

"""Adds functions and classes to the top of a file, behind its imports."""

from __future__ import annotations

import itertools

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.source_tree import Result, Source
from perfwrap.edits.syntax.statements import Changes

EMPTY = cst.EmptyLine(indent=False)


def add_code(source: Source, user: cst.CSTNode, code: str, changes: Changes) -> None:
    """Put statements behind the imports at the top, before the node that uses them; raises Refusal.

    Modules that the file imports are not imported again. Two empty lines separate the statements from the next one, and
    from the imports unless they begin with imports.
    """
    place = _place(source, user)
    earlier = changes.get(place)
    text = code.strip("\n").replace("\n", source.module.default_newline) + source.module.default_newline
    added = list(cst.parse_module(text, source.module.config_for_parsing).body)
    known = {source.code(found).strip() for found in source.module.body if _has_import(found)}
    added = [found for found in added if cst.Module([found]).code.strip() not in known]
    begins_with_imports = _has_import(added[0])

    def change(updated: cst.CSTNode) -> Result:
        made: Result = updated
        if earlier is not None:
            made = earlier if isinstance(earlier, cst.CSTNode) else earlier(updated)
        rest = list(made.nodes) if isinstance(made, cst.FlattenSentinel) else [made]
        first = rest[0]
        assert isinstance(first, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        leading = list(getattr(first, "leading_lines", ()))
        empty = len(list(itertools.takewhile(lambda line: line.comment is None, leading)))
        behind = [EMPTY] * max(0, 2 - empty)
        before = [] if begins_with_imports else [EMPTY, EMPTY]
        return cst.FlattenSentinel(
            [
                added[0].with_changes(leading_lines=before),
                *added[1:],
                first.with_changes(leading_lines=[*behind, *leading]),
                *rest[1:],
            ]
        )

    changes[place] = change


def _place(source: Source, user: cst.CSTNode) -> cst.BaseStatement:
    """Return the first statement behind the imports at the top of the file."""
    body = source.module.body
    last = max(
        (
            index
            for index, found in enumerate(body)
            if _has_import(found)
            and not any(
                source.line(other) < source.line(found) for other in body if source.is_inside(user, other)
            )
        ),
        default=-1,
    )
    if last + 1 >= len(body):
        raise Refusal("The file has nothing behind its imports.")
    return body[last + 1]


def _has_import(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and any(
        isinstance(small, cst.Import | cst.ImportFrom) for small in statement.body
    )

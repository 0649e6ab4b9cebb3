"""Adds and removes statements and imports."""

from __future__ import annotations

import itertools

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.source_tree import Change, Result, Source, dotted_name

Changes = dict[cst.CSTNode, Change]


def check_own_lines(source: Source, statement: cst.BaseStatement) -> None:
    """Refuse a statement next to which no line can be added: one behind the colon of another."""
    if not isinstance(source.parent(statement), cst.IndentedBlock | cst.Module):
        raise Refusal(f"Line {source.line(statement)} has no block of its own.")


def with_lines(source: Source, statement: cst.BaseStatement, before: list[str], after: list[str]) -> Change:
    """Return a change that puts new statements next to a statement; comments above it stay there."""
    check_own_lines(source, statement)

    def change(updated: cst.CSTNode) -> Result:
        new_before = [source.parse(text) for text in before]
        return cst.FlattenSentinel([*new_before, updated, *(source.parse(text) for text in after)])

    return change


def without_statement(source: Source, statement: cst.BaseSmallStatement) -> str:
    """Return the text without a simple statement; comments around it stay, but not the one in its line."""
    line = source.parent(statement)
    if not isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite):
        raise Refusal(f"Line {source.line(statement)} cannot be removed.")
    if len(line.body) > 1:
        rest = [found for found in line.body if found is not statement]
        if statement is line.body[-1]:
            rest[-1] = rest[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return source.replaced({line: line.with_changes(body=rest)})
    block = source.parent(line)
    is_only = isinstance(line, cst.SimpleStatementSuite) or (
        isinstance(block, cst.IndentedBlock) and len(block.body) == 1
    )
    if is_only:
        return source.replaced({statement: cst.Pass()})
    return source.without_lines(source.line(line), source.last_line(statement))


def module_name(source: Source, module: str, changes: Changes) -> str:
    """Return the name under which a module such as ``torch`` is used; if there is none, import it."""
    for node in source.inside(source.module, cst.Import):
        if not isinstance(source.scope(node), cst.Module):
            continue
        for alias in node.names:
            name = dotted_name(alias.name)
            if alias.asname is not None and name == module:
                return dotted_name(alias.asname.name)
            if alias.asname is None and name.partition(".")[0] == module:
                return module
    statements = [found for found in source.module.body if not _is_docstring(found) and not _is_future(found)]
    # Next to an import of a part of the module, else at the top.
    first = next(
        (found for found in statements if _imports(found, module)), statements[0] if statements else None
    )
    if first is None or first in changes:
        raise Refusal(f"The file does not import {module}.")

    def change(updated: cst.CSTNode) -> Result:
        lines = list(getattr(updated, "leading_lines", []))
        empty = list(itertools.takewhile(lambda line: line.comment is None, lines))
        added = source.parse(f"import {module}").with_changes(leading_lines=empty)
        return cst.FlattenSentinel([added, updated.with_changes(leading_lines=lines[len(empty) :])])

    changes[first] = change
    return module


def _imports(statement: cst.BaseStatement, module: str) -> bool:
    """Return whether a statement imports a part of a module."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    names = []
    for small in statement.body:
        if isinstance(small, cst.Import):
            names += [dotted_name(alias.name) for alias in small.names]
        elif isinstance(small, cst.ImportFrom) and small.module is not None and not small.relative:
            names.append(dotted_name(small.module))
    return any(name.partition(".")[0] == module for name in names)


def _is_docstring(statement: cst.BaseStatement) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )


def _is_future(statement: cst.BaseStatement) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.ImportFrom)
        and statement.body[0].module is not None
        and dotted_name(statement.body[0].module) == "__future__"
    )

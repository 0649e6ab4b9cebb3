"""Finds the one place that calls a function of the file."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from perfwrap.edits.outcome import Refusal
from perfwrap.edits.syntax.call_arguments import called_name
from perfwrap.edits.syntax.names import changed_names
from perfwrap.edits.syntax.source_tree import Source, dotted_name


def alone(source: Source, call: cst.Call, what: str) -> cst.SimpleStatementLine:
    """Return the statement that is nothing but a call; raises Refusal."""
    statement = source.statement(call)
    if (
        not isinstance(statement, cst.SimpleStatementLine)
        or len(statement.body) != 1
        or not isinstance(source.parent(call), cst.Expr)
    ):
        raise Refusal(f"Line {source.line(call)} does more than {what}.")
    return statement


def only_caller(
    source: Source, statement: cst.BaseStatement, is_harmless: Callable[[cst.Call], bool], what: str
) -> cst.SimpleStatementLine:
    """Return the one statement that calls the function around a statement; raises Refusal.

    The function must do nothing else: all of its calls are harmless, and it sets nothing but its own variables.
    ``what`` is what it does, e.g. "save".
    """
    function = source.scope(statement)
    if not isinstance(function, cst.FunctionDef):
        raise Refusal(f"Line {source.line(statement)} is not in a loop.")
    name = function.name.value
    same = [found for found in source.inside(source.module, cst.FunctionDef) if found.name.value == name]
    named = [found for found in source.inside(source.module, cst.Name) if found.value == name]
    # ``torch.save`` is another function than ``self.save``.
    mentioned = [
        found for found in named if source.parent(found) is not function and not _is_imported(source, found)
    ]
    calls = [
        found
        for found in source.inside(source.module, cst.Call)
        if called_name(found) == name and not _is_of_module(source, found.func)
    ]
    if len(same) > 1 or len(calls) != 1 or len(mentioned) != 1:
        raise Refusal(
            f"Line {source.line(statement)} is not in a loop, and {name}() is not called at exactly one place."
        )
    if any(source.inside(function, cst.Yield, cst.Await, cst.Global, cst.Nonlocal)):
        raise Refusal(f"{name}() does more than {what}.")
    for found in source.inside(function.body, cst.Call):
        if not is_harmless(found):
            raise Refusal(f"{name}() calls {source.code(found.func)}(), so it may do more than {what}.")
    stored = sorted(found for found in changed_names(source, function.body) if "." in found)
    if stored:
        raise Refusal(f"{name}() sets {stored[0]}, so it does more than {what}.")
    return alone(source, calls[0], what)


def _is_of_module(source: Source, expression: cst.CSTNode) -> bool:
    """Return whether an expression is a function or a value of a module that the file imports."""
    plain = {
        dotted_name(alias.name).partition(".")[0]
        for found in source.inside(source.module, cst.Import)
        for alias in found.names
    }
    first = dotted_name(expression).partition(".")[0]
    return first in plain or first in source.full_names


def _is_imported(source: Source, name: cst.Name) -> bool:
    """Return whether a name is that of a module's attribute, or of a keyword, or of what is imported."""
    parent = source.parent(name)
    if isinstance(parent, cst.Attribute) and parent.attr is name:
        return _is_of_module(source, parent)
    return isinstance(parent, cst.ImportAlias) or (isinstance(parent, cst.Arg) and parent.keyword is name)

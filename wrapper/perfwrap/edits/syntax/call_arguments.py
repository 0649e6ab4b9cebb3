"""Finds a call at a line, and sets or removes one of its arguments in the style of the call."""

from __future__ import annotations

import re
from collections.abc import Callable

import libcst as cst

from perfwrap.edits.outcome import Refusal, Value
from perfwrap.edits.syntax.source_tree import Source, dotted_name


def find_call(source: Source, line: int, is_wanted: Callable[[cst.Call], bool], what: str) -> cst.Call:
    """Return the one wanted call that starts at a line, or that spans it; raises Refusal."""
    calls: list[cst.Call] = [
        call
        for call in source.inside(source.module, cst.Call)
        if source.line(call) <= line <= source.last_line(call) and is_wanted(call)
    ]
    calls = [call for call in calls if source.line(call) == line] or calls
    if not calls:
        raise Refusal(f"Line {line} has no call of {what}.")
    if len(calls) > 1:
        raise Refusal(f"Line {line} has several calls of {what}.")
    return calls[0]


def callee(source: Source, call: cst.Call) -> str:
    """Return the last name of what is called, with the imports resolved: ``DataLoader`` of ``data.DataLoader``."""
    name = source.name(call.func)
    if name:
        return name.rpartition(".")[2]
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""


def is_method(call: cst.Call, *names: str) -> bool:
    """Return whether the call is that of an attribute with one of these names."""
    return isinstance(call.func, cst.Attribute) and call.func.attr.value in names


def matches(source: Source, call: cst.Call, callees: re.Pattern[str]) -> bool:
    """Return whether the last name of what is called matches."""
    return callees.fullmatch(callee(source, call)) is not None


def unpacked(call: cst.Call) -> list[cst.Arg]:
    """Return the arguments that are unpacked: ``*values`` and ``**options``."""
    return [argument for argument in call.args if argument.star]


def argument_of(call: cst.Call, keyword: str, position: int | None = None) -> cst.Arg | None:
    """Return an argument by its keyword, or else by its position."""
    for argument in call.args:
        if argument.keyword is not None and argument.keyword.value == keyword:
            return argument
    if position is not None and position < len(call.args):
        given = call.args[position]
        if given.keyword is None and not any(earlier.star for earlier in call.args[: position + 1]):
            return given
    return None


def literal(value: Value) -> cst.BaseExpression:
    """Return a value as an expression."""
    return cst.parse_expression(repr(value))


def has_value(source: Source, node: cst.BaseExpression, value: Value) -> bool:
    """Return whether an expression is the literal of a value."""
    return source.code(node) == repr(value)


def with_arguments(
    source: Source, call: cst.Call, updated: cst.CSTNode, wanted: dict[str, cst.BaseExpression]
) -> cst.Call:
    """Return the updated call with keyword arguments added behind its last one, in the style of the original call.

    With one argument per line each new one gets a line of its own; a comma at the end stays.
    """
    assert isinstance(updated, cst.Call)
    arguments = list(updated.args)
    for keyword, value in wanted.items():
        new = cst.Arg(
            value,
            keyword=cst.Name(keyword),
            equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
        )
        if not arguments:
            arguments.append(new)
            continue
        # The new argument gets what stood behind the last one, without its comment.
        last = arguments[-1]
        comment, behind = _split_comment(last)
        new = new.with_changes(comma=behind.comma, whitespace_after_arg=behind.whitespace_after_arg)
        between = _between(source, call)
        if comment is not None and isinstance(between, cst.ParenthesizedWhitespace):
            between = between.with_changes(first_line=comment)
        arguments[-1] = last.with_changes(
            comma=cst.Comma(whitespace_after=between), whitespace_after_arg=cst.SimpleWhitespace("")
        )
        arguments.append(new)
    return updated.with_changes(args=arguments)


def _split_comment(argument: cst.Arg) -> tuple[cst.TrailingWhitespace | None, cst.Arg]:
    """Return the end of an argument's line if it has a comment, and the argument without that comment."""
    comma = argument.comma if isinstance(argument.comma, cst.Comma) else None
    space = comma.whitespace_after if comma else argument.whitespace_after_arg
    if not isinstance(space, cst.ParenthesizedWhitespace) or space.first_line.comment is None:
        return None, argument
    bare = space.with_changes(
        first_line=space.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
    )
    if comma:
        return space.first_line, argument.with_changes(comma=comma.with_changes(whitespace_after=bare))
    return space.first_line, argument.with_changes(whitespace_after_arg=bare)


def _between(source: Source, call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """Return what separates two arguments of a call: a space, or a new line with its indentation."""
    if not call.args or source.line(call.args[-1]) == source.line(call):
        return cst.SimpleWhitespace(" ")
    last = source.line(call.args[-1])
    if any(source.line(argument) == last for argument in call.args[:-1]):
        return cst.SimpleWhitespace(" ")
    if len(call.args) == 1:
        before = call.whitespace_before_args
    else:
        comma = call.args[-2].comma
        before = comma.whitespace_after if isinstance(comma, cst.Comma) else cst.SimpleWhitespace(" ")
    if isinstance(before, cst.ParenthesizedWhitespace):
        # Without comments, and without empty lines.
        return before.with_changes(
            first_line=before.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None),
            empty_lines=[],
        )
    return cst.SimpleWhitespace(" ")


def without_argument(call: cst.Call, updated: cst.CSTNode, gone: cst.Arg) -> cst.Call:
    """Return the updated call without an argument of the original one; what follows the last one stays."""
    assert isinstance(updated, cst.Call)
    index = next(index for index, found in enumerate(call.args) if found is gone)
    arguments = [found for place, found in enumerate(updated.args) if place != index]
    if arguments and index == len(arguments):
        last = updated.args[index]
        arguments[-1] = arguments[-1].with_changes(
            comma=last.comma, whitespace_after_arg=last.whitespace_after_arg
        )
    return updated.with_changes(args=arguments)


def receiver(call: cst.Call) -> str:
    """Return the dotted name of the object whose method is called; empty if it has none."""
    return dotted_name(call.func.value) if isinstance(call.func, cst.Attribute) else ""


def called_name(call: cst.Call) -> str:
    """Return the last name of what is called, as it is written; empty if it has no name."""
    if isinstance(call.func, cst.Attribute):
        return call.func.attr.value
    return call.func.value if isinstance(call.func, cst.Name) else ""

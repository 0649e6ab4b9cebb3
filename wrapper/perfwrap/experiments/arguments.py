"""Replaces an argument of a call in the user's source text, without changing any other character.

The text is parsed with ``ast``, whose columns count bytes of UTF-8, so the edit is made in bytes. The result is parsed
again: an edit that does not read back as intended is rejected.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from msgspec import Struct

NEW_LINE = re.compile(rb"\r\n|\r|\n")


class Argument(Struct, frozen=True):
    """The new argument: its name, its position (None for keywords), its new text.

    ``callees`` matches the name of the called function or class, without the part before its last dot.
    """

    keyword: str
    value: str
    position: int | None
    callees: re.Pattern[str]


def set_argument(source: str, line: int, argument: Argument) -> str | None:
    """Return the source with that argument in the call at that line; None if the call is ambiguous.

    A call that unpacks a dictionary or a list (``**options``) may already have the argument, so it is not edited.
    """
    try:
        call = _call_at(ast.parse(source), line, argument)
    except (SyntaxError, ValueError):
        return None
    if call is None:
        return None
    text = source.encode("utf-8")
    edited = _edited(text, call, argument).decode("utf-8")
    return edited if _reads_back(edited, call, argument) else None


def _call_at(tree: ast.Module, line: int, argument: Argument) -> ast.Call | None:
    """Return the only matching call that spans the line, or of several the one that starts there."""
    spanning = [call for call in _calls(tree, argument) if call.lineno <= line <= (call.end_lineno or 0)]
    starting = [call for call in spanning if call.lineno == line]
    found = spanning if len(spanning) == 1 else starting
    if len(found) != 1 or _unpacks(found[0]):
        return None
    return found[0]


def _calls(tree: ast.AST, argument: Argument) -> Iterator[ast.Call]:
    """Return the calls of the function or class of the argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if argument.callees.fullmatch(name):
                yield node


def _unpacks(call: ast.Call) -> bool:
    """Return whether some arguments of a call cannot be read from its text."""
    return any(isinstance(value, ast.Starred) for value in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    )


def _edited(text: bytes, call: ast.Call, argument: Argument) -> bytes:
    """Return the text with the argument replaced, or added if it is missing."""
    starts = [0, *(found.end() for found in NEW_LINE.finditer(text))]
    given = _given(call, argument)
    if given is not None:
        begin = starts[given.lineno - 1] + given.col_offset
        end = starts[(given.end_lineno or 0) - 1] + (given.end_col_offset or 0)
        return text[:begin] + argument.value.encode() + text[end:]
    close = starts[(call.end_lineno or 0) - 1] + (call.end_col_offset or 0) - 1
    added = f"{argument.keyword}={argument.value}".encode()
    last = _last(call)
    if last is None:
        return text[:close] + added + text[close:]
    end = starts[(last.end_lineno or 0) - 1] + (last.end_col_offset or 0)
    end = _end_of_argument(text, min(end, close), close)
    lead = text[starts[last.lineno - 1] : starts[last.lineno - 1] + last.col_offset]
    # With one argument per line, the new one gets its own line.
    apart = last.lineno > call.lineno and not lead.strip()
    between = b"," + _line_end(text) + lead if apart else b", "
    return text[:end] + between + added + text[end:]


def _given(call: ast.Call, argument: Argument) -> ast.expr | None:
    """Return the argument's value in the call, if it has one."""
    for keyword in call.keywords:
        if keyword.arg == argument.keyword:
            return keyword.value
    position = argument.position
    return call.args[position] if position is not None and position < len(call.args) else None


def _last(call: ast.Call) -> ast.expr | ast.keyword | None:
    """Return the last argument."""
    everything: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    return max(everything, key=lambda node: (node.lineno, node.col_offset), default=None)


def _end_of_argument(text: bytes, end: int, close: int) -> int:
    """Return the end of the last argument including the brackets around it, which ``ast`` does not include."""
    place = end
    while place < close:
        sign = text[place : place + 1]
        if sign == b",":
            break
        if sign == b"#":
            found = NEW_LINE.search(text, place)
            place = found.end() if found else close
            continue
        place += 1
        if sign == b")":
            end = place
    return end


def _line_end(text: bytes) -> bytes:
    """Return the line ending of the text."""
    found = NEW_LINE.search(text)
    return found[0] if found else b"\n"


def _reads_back(edited: str, call: ast.Call, argument: Argument) -> bool:
    """Return whether the edited text parses and its call has the new argument and all the others."""
    try:
        tree, value = ast.parse(edited), ast.parse(argument.value, mode="eval").body
    except (SyntaxError, ValueError):
        return False
    again = [
        found
        for found in _calls(tree, argument)
        if (found.lineno, found.col_offset) == (call.lineno, call.col_offset)
    ]
    given = _given(again[0], argument) if len(again) == 1 else None
    count = len(call.args) + len(call.keywords) + (_given(call, argument) is None)
    return (
        given is not None
        and ast.dump(given) == ast.dump(value)
        and len(again[0].args) + len(again[0].keywords) == count
    )

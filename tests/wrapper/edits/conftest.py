"""Applies edits to short programs and checks what all of them promise."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from perfwrap.edits import edit
from perfwrap.edits.outcome import Edited, Refused, Target, Value

ODD_STYLE = '''"""A text that no edit touches."""
import os, sys  ;  x = {  'a' :1,\n\t'b':[ 1,2 , ] }   # comment \n
def   f( a ,b = 2 )  :   return a  # end
'''
MARK = "# here"


def line_of(text: str, mark: str = MARK) -> int:
    """Return the number of the marked line."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if mark in line)


def changed(old: str, new: str) -> str:
    """Return the changed lines as a diff without context."""
    lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=0, lineterm=""))
    return "\n".join(line for line in lines[2:] if not line.startswith("@@"))


@pytest.fixture
def apply() -> Callable[..., str]:
    """Return the changed lines, after the checks that hold for every edit."""

    def check(
        name: str,
        program: str,
        words: tuple[str, ...] = (),
        seen: dict[str, Value] | None = None,
        **values: Value,
    ) -> str:
        program = textwrap.dedent(program).lstrip("\n")
        target = Target(line_of(program), values, words, seen or {})
        found = edit(name, program, target)
        assert isinstance(found, Edited), found
        assert found.sentence.endswith(".")
        compile(found.text, "edited.py", "exec")
        # A second application finds nothing to do.
        again = replace(target, line=line_of(found.text)) if MARK in found.text else target
        assert isinstance(edit(name, found.text, again), Refused)
        # Unusual white space around it, and other line ends, stay.
        odd = ODD_STYLE + program + ODD_STYLE
        lines = len(ODD_STYLE.splitlines())
        moved = edit(name, odd, replace(target, line=target.line + lines))
        assert isinstance(moved, Edited)
        assert sorted(changed(odd, moved.text).splitlines()) == sorted(
            changed(program, found.text).splitlines()
        )
        returned = edit(name, program.replace("\n", "\r\n"), target)
        assert isinstance(returned, Edited)
        assert returned.text == found.text.replace("\n", "\r\n")
        return changed(program, found.text)

    return check


@pytest.fixture
def refuse() -> Callable[..., str]:
    """Return why an edit is refused."""

    def check(
        name: str,
        program: str,
        words: tuple[str, ...] = (),
        seen: dict[str, Value] | None = None,
        **values: Value,
    ) -> str:
        program = textwrap.dedent(program).lstrip("\n")
        found = edit(name, program, Target(line_of(program), values, words, seen or {}))
        assert isinstance(found, Refused), found
        return found.reason

    return check

"""Makes text safe for terminals and logs: all output of perfwrap goes through this module.

Names of files, functions and threads can be any text: they may contain control sequences for the terminal, or look
like a command to a CI service (``::error::`` at the beginning of a line, ``##[command]``).
"""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

AT_THE_BEGINNING = "::"
"""The beginning of GitHub commands; GitHub skips spaces before them."""
ANYWHERE = ("##[", "##vso[", "##teamcity[")
"""Commands to GitHub (older syntax), Azure Pipelines and TeamCity."""


def visible(text: str) -> str:
    """Return the text with invisible characters and terminal control sequences written as escapes."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def harmless(line: str) -> str:
    """Return a visible line that no CI service reads as a command; as JSON it has the same meaning."""
    if line.lstrip().startswith(AT_THE_BEGINNING):
        line = line.replace(":", r"\u003a", 1)
    for command in ANYWHERE:
        if command in line:
            line = line.replace(command, r"#\u0023" + command[2:])
    return line


def say(line: str, stream: TextIO | None = None) -> None:
    """Print one line, to standard error unless another stream is given; ignore a closed pipe."""
    with contextlib.suppress(OSError):
        print(harmless(visible(line)), file=sys.stderr if stream is None else stream, flush=True)

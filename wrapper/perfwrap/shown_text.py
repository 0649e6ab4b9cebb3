"""Text for terminals and logs that nothing in it can steer: what perfwrap prints goes through here.

Names of files, functions and threads are whatever somebody chose: they may hold what moves a terminal's cursor, or
look like a command to the service that runs a check (``::error::`` at the beginning of a line, ``##[command]``).
"""

from __future__ import annotations

import contextlib
import sys
from typing import TextIO

AT_THE_BEGINNING = "::"
"""So begin commands to GitHub, which skips blanks before them."""
ANYWHERE = ("##[", "##vso[", "##teamcity[")
"""Commands to GitHub (of its first kind), Azure Pipelines and TeamCity."""


def visible(text: str) -> str:
    """Return the text with everything that does not show, or that steers a terminal, written as an escape."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def harmless(line: str) -> str:
    """Return a visible line as one that no service takes for a command; in JSON it means the same."""
    if line.lstrip().startswith(AT_THE_BEGINNING):
        line = line.replace(":", r"\u003a", 1)
    for command in ANYWHERE:
        if command in line:
            line = line.replace(command, r"#\u0023" + command[2:])
    return line


def say(line: str, stream: TextIO | None = None) -> None:
    """Print one line, on standard error unless another stream is named, where there is somebody to read it."""
    with contextlib.suppress(OSError):
        print(harmless(visible(line)), file=sys.stderr if stream is None else stream, flush=True)

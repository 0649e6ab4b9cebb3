"""Arguments and options that the reading commands share, with their words."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Annotated, TypeAlias

import typer

from perfwrap.commands import runs
from perfwrap.errors import PerfwrapError
from perfwrap.shown_text import harmless

RUN_HELP = "A run: its folder, its name or a part of that, or latest."

Run: TypeAlias = Annotated[str, typer.Argument(help=RUN_HELP, autocompletion=runs.complete)]
Format: TypeAlias = Annotated[
    str, typer.Option("--format", metavar="NAME", help="How to write it: terminal, json, markdown or github.")
]
Html: TypeAlias = Annotated[bool, typer.Option("--html", help="Write RUN/report.html anew, too.")]
Rules: TypeAlias = Annotated[
    str,
    typer.Option(
        "--rules", metavar="NAMES", show_default="all", help="Ask only these rules, joined by commas."
    ),
]
Ignore: TypeAlias = Annotated[
    str,
    typer.Option(
        "--ignore", metavar="NAMES", show_default="none", help="Do not ask these rules, joined by commas."
    ),
]
Allow: TypeAlias = Annotated[
    str,
    typer.Option(
        "--allow",
        metavar="WORDS",
        show_default="none",
        help="Differences that are meant, joined by commas: host, gpu, torch, command, world, batch, anchor, load.",
    ),
]


def words(joined: str) -> tuple[str, ...]:
    """Return the words of a list that is joined by commas."""
    return tuple(word.strip() for word in joined.split(",") if word.strip())


def chosen(format: str, formats: Collection[str]) -> str:
    """Return the format that was asked for; PerfwrapError for another."""
    if format not in formats:
        raise PerfwrapError(f"There is no format {format!r} here.", f"One of: {', '.join(formats)}.")
    return format


def allowed(joined: str) -> frozenset[str]:
    """Return the differences that are meant; PerfwrapError for a word that is none."""
    # Imported here, not above: the command line must start fast.
    from perfwrap.compare.obstacles import ALLOWABLE

    found = frozenset(words(joined))
    for word in sorted(found - set(ALLOWABLE)):
        raise PerfwrapError(f"--allow knows nothing of {word!r}.", f"It takes any of {', '.join(ALLOWABLE)}.")
    return found


def put(text: str, has_commands: bool = False) -> None:
    """Write text to standard output as UTF-8, whatever the locale; ``has_commands``: GitHub is to obey its lines."""
    if not has_commands:
        text = "\n".join(map(harmless, text.split("\n")))
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.flush()

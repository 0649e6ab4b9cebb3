"""Arguments and options of the commands that read runs, with their help texts."""

from __future__ import annotations

import sys
from typing import Annotated, TypeAlias

import typer

from perfwrap.analysis import run_names
from perfwrap.commands.options.recording_options import COMMON
from perfwrap.shown_text import harmless

RUN_HELP = "A run: its folder, its name or part of its name, or latest."

Run: TypeAlias = Annotated[str, typer.Argument(help=RUN_HELP, autocompletion=run_names.complete)]
Format: TypeAlias = Annotated[
    str,
    typer.Option("--format", metavar="NAME", help="Output format: terminal, json, markdown or github."),
]
Rules: TypeAlias = Annotated[
    str,
    typer.Option(
        "--rules",
        metavar="NAMES",
        show_default="all",
        help="Run only these rules, comma-separated.",
        rich_help_panel=COMMON,
    ),
]
Ignore: TypeAlias = Annotated[
    str,
    typer.Option(
        "--ignore",
        metavar="NAMES",
        show_default=False,
        help="Skip these rules, comma-separated.",
        rich_help_panel=COMMON,
    ),
]
Price: TypeAlias = Annotated[
    str,
    typer.Option(
        "--price",
        metavar="PRICE",
        show_default=False,
        help="Show what the run costs: 0.30EUR/kWh (of its energy) or 12.5USD/h (of the machine).",
        rich_help_panel=COMMON,
    ),
]
Allow: TypeAlias = Annotated[
    str,
    typer.Option(
        "--allow",
        metavar="WORDS",
        show_default=False,
        help="Intended differences, comma-separated: host, gpu, torch, command, world, batch, anchor, load.",
    ),
]


def put(text: str, has_commands: bool = False) -> None:
    """Write text to standard output as UTF-8 in every locale; ``has_commands``: GitHub is to obey its lines."""
    if not has_commands:
        text = "\n".join(map(harmless, text.split("\n")))
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))
    sys.stdout.flush()

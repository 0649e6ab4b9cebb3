"""The table of commands for the command line: lists all commands, and imports only the one that is used."""

from __future__ import annotations

import os
import shlex
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

from perfwrap.commands import COMMANDS, Command
from perfwrap.commands.options.optional_values import (
    CommandWithOptionalValues,
    skip_needless_conversions,
    visible_errors,
)
from perfwrap.errors import PerfwrapError
from perfwrap.launch import process

SCRIPTS = (".py", ".sh")
BY_NAME = {command.name: command for command in COMMANDS}


class CommandGroup(TyperGroup):
    """Holds a placeholder with the summary of each command, and loads a command when the command line names it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the first word names; PerfwrapError if that word is a program."""
        if args and args[0] not in BY_NAME and _is_program(args[0]):
            is_file = args[0].endswith(".py") and process.find(args[0], os.environ) is None
            command = shlex.join(["python", *args] if is_file else args)
            raise PerfwrapError(
                f"{args[0]!r} is not a perfwrap command.", f"To profile it: perfwrap run -- {command}"
            )
        with visible_errors():
            name, found, rest = super().resolve_command(ctx, args)
        return name, loaded(BY_NAME[name]) if name in BY_NAME else found, rest

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options before the command."""
        skip_needless_conversions(self.get_params(ctx))
        with visible_errors():
            return super().parse_args(ctx, args)


def add_placeholders(app: typer.Typer) -> None:
    """Give the application a command for each entry of COMMANDS; only names and summaries of these are used."""
    for command in COMMANDS:
        app.command(command.name, short_help=command.summary)(_placeholder)


def loaded(command: Command) -> Any:
    """Import a command and return it for the command line."""
    # An application with one command and no callback is that command.
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    settings = {"help_option_names": ["-h", "--help"], **command.settings}
    alone.command(command.name, cls=CommandWithOptionalValues, context_settings=settings)(command.load())
    return typer.main.get_command(alone)


def _placeholder() -> None:
    """Stand for a command that is not imported."""


def _is_program(word: str) -> bool:
    """Return whether a word is a program or a script instead of a misspelt command of perfwrap."""
    if word.startswith("-") or get_close_matches(word, BY_NAME):
        return False
    return word.endswith(SCRIPTS) or process.find(word, os.environ) is not None

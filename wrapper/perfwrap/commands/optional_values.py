"""Options that may have a value or none: ``--nsys`` and ``--nsys='--cuda-graph-trace=node'``; the usage of commands.

The library would take the next word for the value of such an option, and that is the user's command. So a value
must be joined with ``=``; it goes to a hidden option of its own, ``--nsys-options``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from perfwrap.shown_text import harmless, visible

HIDDEN = "-options"
"""Ends the name of the hidden option that takes the value."""


MESSAGE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""All errors of the command line; newer versions of the library bring their own click, others import it."""


@contextmanager
def visibly() -> Iterator[None]:
    """Have the library's messages steer no terminal: they repeat words, which may be names of files."""
    try:
        yield
    except MESSAGE as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # Its message is our own help.
            error.message = harmless(visible(error.message))
        raise


class Commands(TyperGroup):
    """The table of commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is meant."""
        with visibly():
            return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what stands before the command."""
        with visibly():
            return super().parse_args(ctx, args)


class CommandWithOptionalValues(TyperCommand):
    """A command some of whose options may have a value, and whose usage names its arguments as the docs do."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage; some versions of the library put braces and dots around arguments."""
        told = [self.options_metavar] if self.options_metavar else []
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                name = parameter.metavar or (parameter.name or "").upper()
                told.append(name if parameter.required or parameter.metavar else f"[{name}]")
        return told

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Give the values of such options to their hidden twins, and parse."""
        with visibly():
            return super().parse_args(ctx, self._told_apart(args))

    def _told_apart(self, words: list[str]) -> list[str]:
        """Return the words with each such value behind its hidden option; the command's own stay as they are."""
        names = {name: parameter for parameter in self.params for name in parameter.opts}
        told: list[str] = []
        rest = iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if not word.startswith("-") or word == "--":
                told.append(word)
                break
            if equals and name + HIDDEN in names and name in names:
                told += [name, name + HIDDEN, value]
                continue
            told.append(word)
            takes_value = name in names and not getattr(names[name], "is_flag", False)
            if takes_value and not equals:
                told += islice(rest, 1)
        return [*told, *rest]

"""Options with an optional value: ``--nsys`` and ``--nsys='--cuda-graph-trace=node'``; usage and help of commands.

The library would take the next word as the value of such an option, and that word is the user's command. So a value
must be joined with ``=``; it goes to a hidden option of its own, ``--nsys-options``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from perfwrap.commands.options.recording_options import OTHER
from perfwrap.shown_text import harmless, visible

HIDDEN = "-options"
"""Ends the name of the hidden option that takes the value."""

MIN_GROUPED = 20
"""The help of a command with more arguments and options has a section for each group of options."""

MESSAGE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""All errors of the command line; newer versions of the library contain their own click, older ones import it."""


@contextmanager
def visible_errors() -> Iterator[None]:
    """Escape control characters in the library's messages: they repeat words of the user, e.g. names of files."""
    try:
        yield
    except MESSAGE as error:
        if type(error).__name__ != "NoArgsIsHelpError":  # Its message is our own help.
            error.message = harmless(visible(error.message))
        raise


def skip_needless_conversions(parameters: Iterable[Any]) -> None:
    """Keep the library from converting values that need no conversion: it would import pydantic, which takes 0.1 s.

    Older versions of the library convert values without pydantic, and do not have the function that is replaced here.
    """
    for parameter in parameters:
        if hasattr(parameter, "get_runtime_param"):
            parameter.get_runtime_param = partial(_ValueConversion, parameter.get_runtime_param)


@dataclass(frozen=True)
class _ValueConversion:
    """Converts the values of one parameter; a value that needs no conversion is returned as it is."""

    convert: Callable[[], Any]
    """Returns the library's own conversion."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value of the parameter for the command."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if _is_list_of_text(value, param):
            return list(value)
        if _is_new_path(value, param):
            return Path(value)
        return value if _is_ready(value, param) else self.convert().coerce(value, param=param, ctx=ctx)


def _is_list_of_text(value: Any, parameter: Any) -> bool:
    """Return whether these are words for a parameter that takes a list of words, such as the user's command."""
    kind = parameter.type_descriptor
    is_plain = kind.annotation == list[str] and kind.parameter_info.parser is None
    return is_plain and bool(value) and all(type(word) is str for word in value)


def _is_ready(value: Any, parameter: Any) -> bool:
    """Return whether the library would return a value as it is: text for text, a switch, or a default."""
    kind = parameter.type_descriptor
    if parameter.multiple or parameter.nargs != 1 or kind.parameter_info.parser is not None:
        return False
    is_final = kind.annotation in (str, bool) or value == parameter.default
    return type(value) is kind.annotation and is_final


def _is_new_path(value: Any, parameter: Any) -> bool:
    """Return whether this is the path of a file that does not exist and does not have to: there is nothing to check."""
    kind = parameter.type_descriptor
    if kind.annotation is not Path or type(value) is not str or parameter.multiple or parameter.nargs != 1:
        return False
    rules = kind.parameter_info
    needs_more = rules.parser or rules.exists or rules.resolve_path or rules.path_type
    return not needs_more and not os.path.lexists(value)


class CommandWithOptionalValues(TyperCommand):
    """A command whose options may have an optional value, and whose help has a section for each group of options."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage; some versions of the library add braces and dots to arguments."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                pieces.append(_argument_name(parameter))
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments that have a help text, and the options by group: each group is an option's panel."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        parameters: list[Any] = self.get_params(ctx)
        records = [(parameter, parameter.get_help_record(ctx)) for parameter in parameters]
        is_long = len(records) > MIN_GROUPED
        for parameter, record in records:
            if parameter.param_type_name == "argument":
                if parameter.help:
                    sections["Arguments"].append((_argument_name(parameter), record[1]))
            elif record is not None:
                panel = getattr(parameter, "rich_help_panel", None) if is_long else "Options"
                sections.setdefault(panel or OTHER, []).append(record)
        for title, rows in sections.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move the values of such options to their hidden options, and parse."""
        skip_needless_conversions(self.get_params(ctx))
        with visible_errors():
            return super().parse_args(ctx, self._separated(args))

    def _separated(self, words: list[str]) -> list[str]:
        """Return the words with each such value behind its hidden option; the user's command is not changed."""
        names = {name: parameter for parameter in self.params for name in parameter.opts}
        separated: list[str] = []
        rest = iter(words)
        for word in rest:
            name, equals, value = word.partition("=")
            if not word.startswith("-") or word == "--":
                separated.append(word)
                break
            if equals and name + HIDDEN in names and name in names:
                separated += [name, name + HIDDEN, value]
                continue
            separated.append(word)
            takes_value = name in names and not getattr(names[name], "is_flag", False)
            if takes_value and not equals:
                separated += islice(rest, 1)
        return [*separated, *rest]


def _argument_name(parameter: Any) -> str:
    """Return an argument as the usage names it, without its type."""
    name = parameter.metavar or (parameter.name or "").upper()
    return name if parameter.required or parameter.metavar else f"[{name}]"

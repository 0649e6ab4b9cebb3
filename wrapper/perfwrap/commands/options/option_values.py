"""Check the values of options; PerfwrapError for a value that the option does not take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection

from perfwrap.errors import PerfwrapError
from perfwrap.launch.options import WINDOW_DETAILS, option_name


def words(joined: str) -> tuple[str, ...]:
    """Return the words of a comma-separated list."""
    return tuple(word.strip() for word in joined.split(",") if word.strip())


def choice(option: str, value: str, choices: Collection[str]) -> str:
    """Return the value, which must be one of the choices."""
    if value not in choices:
        raise PerfwrapError(f"{option} does not take {value!r}.", f"Use one of: {', '.join(choices)}.")
    return value


def percentage(option: str, value: str, minimum: float, maximum: float, example: str) -> float:
    """Return the share for a percentage with or without its sign; the bounds are in per cent."""
    try:
        percent = float(value.strip().removesuffix("%"))
    except ValueError:
        percent = float("nan")
    if not minimum <= percent <= maximum:
        raise PerfwrapError(
            f"{option} takes a percentage from {minimum:g} to {maximum:g}, not {value!r}.",
            f"For example: {option} {example}",
        )
    return percent / 100


def warm_up(option: str, value: str) -> str:
    """Return the number of warm-up steps, or ``auto``."""
    if value != "auto" and not re.fullmatch("[0-9]{1,9}", value):
        raise PerfwrapError(
            f"{option} takes a number of steps or auto, not {value!r}.", f"For example: {option} 20"
        )
    return value


def window(value: str) -> str:
    """Return which steps torch.profiler captures."""
    if value not in ("auto", "steady", "worst", "kernels") and not re.fullmatch(
        r"[1-9][0-9]{0,3}@[0-9]{1,12}", value
    ):
        raise PerfwrapError(
            f"--window does not take {value!r}.",
            "Use auto, steady, worst, kernels, or N@M for N steps after step M, for example: --window 5@100",
        )
    return value


def window_details(value: str) -> tuple[str, ...]:
    """Return the extra data that torch.profiler records; each word with or without its plural s."""
    asked = dict.fromkeys(word.removesuffix("s") for word in words(value))
    known = {word.removesuffix("s"): word for word in WINDOW_DETAILS}
    for word in asked:
        if word not in known:
            raise PerfwrapError(
                f"--window-detail does not take {word!r}.",
                f"Use one or more of {', '.join(WINDOW_DETAILS)}, comma-separated.",
            )
    return tuple(known[word] for word in asked)


def tool_options(options: str, reserved: tuple[str, ...]) -> tuple[str, ...]:
    """Return the options for another tool as a list; ``reserved`` are those that perfwrap sets itself."""
    try:
        split = tuple(shlex.split(options))
    except ValueError as error:
        raise PerfwrapError(f"Cannot parse the options {options!r}: {error}.", "Check the quotes.") from error
    for word in split:
        if not word.startswith("-"):
            raise PerfwrapError(
                f"{word!r} is not an option of the tool.",
                "Join options and their values: --name=value, or -nvalue.",
            )
        if option_name(word) in reserved:
            raise PerfwrapError(f"perfwrap sets {option_name(word)} itself.", "Remove that option.")
    return split

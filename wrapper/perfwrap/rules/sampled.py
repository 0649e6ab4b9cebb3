"""Words about what samples of stacks were in, for the rules that quote them."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.stacks import OUTSIDE, HotFunction, Sampled
from perfwrap.rules.model import place

QUOTED = 2
"""Functions that are named."""
MAIN_SHARE = 0.5
"""A function with so many of the samples is what to look at."""
INSTALLED = "site-packages"
"""Part of the paths of code that is not the user's own."""
WORTH_SHARE = 0.1
"""A second function is named from this share of the samples on."""


def main_function(sampled: Sampled | None) -> HotFunction | None:
    """Return the function of the program that has half of py-spy's samples; None where there is no such one."""
    if sampled is None or sampled.source != OUTSIDE or not sampled.functions:
        return None
    hottest = sampled.functions[0]
    return (
        hottest
        if hottest.count >= MAIN_SHARE * sampled.count and INSTALLED not in hottest.line.file
        else None
    )


def quote(sampled: Sampled | None, what: str) -> tuple[str, ...]:
    """Return the sentence that says where samples of ``what`` were; none where there are none to quote."""
    if sampled is None or not sampled.functions:
        return ()
    first, *others = sampled.functions[:QUOTED]
    words = (
        f"{units.count(first.count)} of {units.count(sampled.count)} samples {what} were in {where(first)}"
    )
    for other in others:
        if other.count >= WORTH_SHARE * sampled.count:
            words += f", {units.count(other.count)} in {where(other)}"
    return (f"{words} (sampled by {_by(sampled)}).",)


def quote_shares(sampled: Sampled) -> str:
    """Return the sentence that says which functions have how much of all samples of the training thread."""
    named = [found for found in sampled.functions if found.count >= WORTH_SHARE * sampled.count][:QUOTED]
    words = ", ".join(f"{units.share(found.count / sampled.count)} in {where(found)}" for found in named)
    return (
        f"Of {units.count(sampled.count)} samples of the training thread {words} (sampled by {_by(sampled)})."
    )


def _by(sampled: Sampled) -> str:
    return (
        "py-spy"
        if sampled.source == OUTSIDE
        else "the recorder, which sees lines that give up Python's lock more often"
    )


def where(function: HotFunction) -> str:
    """Return e.g. ``Data.decode at train.py:7``, with ``mostly`` where others of its lines have samples, too."""
    name = function.line.function.replace("<module>", "the script itself") or "a function without a name"
    mostly = " at" if function.on_line == function.count else ", mostly at"
    return f"{name}{mostly} {place(function.line, '')}"

"""Sentences about call stack samples, for the rules that quote them."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.loop.stacks import OUTSIDE, HotFunction, Sampled
from perfwrap.rules.model import place

QUOTED = 2
"""How many functions are named."""
MAIN_SHARE = 0.5
"""Share of the samples from which one function is the main one."""
INSTALLED = "site-packages"
"""Part of the path of code that is not the user's own."""
WORTH_SHARE = 0.1
"""Share of the samples from which a second function is named."""


def main_function(sampled: Sampled | None) -> HotFunction | None:
    """Return the function of the program with at least half of py-spy's samples; None if there is none."""
    if sampled is None or sampled.source != OUTSIDE or not sampled.functions:
        return None
    hottest = sampled.functions[0]
    return (
        hottest
        if hottest.count >= MAIN_SHARE * sampled.count and INSTALLED not in hottest.line.file
        else None
    )


def quote(sampled: Sampled | None, what: str) -> tuple[str, ...]:
    """Return the sentence that names the functions with the most samples of ``what``; nothing without samples."""
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
    """Return the sentence that names the functions with the most samples of the training thread, with their shares."""
    named = [found for found in sampled.functions if found.count >= WORTH_SHARE * sampled.count][:QUOTED]
    words = ", ".join(f"{units.share(found.count / sampled.count)} in {where(found)}" for found in named)
    return f"Samples of the training thread ({units.count(sampled.count)}, by {_by(sampled)}): {words}."


def _by(sampled: Sampled) -> str:
    return (
        "py-spy"
        if sampled.source == OUTSIDE
        else "the recorder; it sees lines that release the GIL more often"
    )


def where(function: HotFunction) -> str:
    """Return e.g. ``Data.decode at train.py:7``; ``mostly at`` if other lines of the function have samples too."""
    name = function.line.function.replace("<module>", "the script") or "an unnamed function"
    mostly = " at" if function.on_line == function.count else ", mostly at"
    return f"{name}{mostly} {place(function.line, '')}"

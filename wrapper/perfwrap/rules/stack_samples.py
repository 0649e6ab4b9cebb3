"""Sentences about call stack samples, for the rules that quote them."""

from __future__ import annotations

from perfwrap import units
from perfwrap.measures.loop.library_calls import LibraryCall
from perfwrap.measures.loop.rare_visits import RareVisits
from perfwrap.measures.loop.stacks import OUTSIDE, HotFunction, Sampled
from perfwrap.rules.model import place

QUOTED = 2
"""How many functions are named."""
MAIN_SHARE = 0.5
"""Share of the samples from which one function is the main one."""
CLEAR_SHARE = 0.7
"""Below this share of the samples that pass a function, one of those that it calls is not the main one in its place."""
INSTALLED = "site-packages"
"""Part of the path of code that is not the user's own."""
LIBRARY_SHARE = 0.25
"""Share of a function's samples from which the libraries that it calls are named."""
MAIN_LIBRARY_SHARE = 0.75
"""Share of a line's samples in libraries from which its time is that of the library."""
JOINED = 0.9
"""Part of the time of a loop that one operation in its place saves at most."""
WORTH_SHARE = 0.1
"""Share of the samples from which a second function is named, or a function has work of its own."""


def main_function(sampled: Sampled | None) -> HotFunction | None:
    """Return the function of the program with at least half of py-spy's samples, or that nearly all of them pass.

    Of the two the one that nearly all pass, if the other has clearly less and it has work of its own, so that it does
    not only call what others gave it. None if there is none.
    """
    if sampled is None or sampled.source != OUTSIDE or not sampled.functions:
        return None
    hottest, passed = sampled.functions[0], sampled.passed
    if hottest.count < MAIN_SHARE * sampled.count:
        return passed
    if passed is not None and hottest.count < CLEAR_SHARE * passed.count:
        same = (passed.line.file, passed.line.function)
        own = sum(each.count for each in sampled.functions if (each.line.file, each.line.function) == same)
        if own >= WORTH_SHARE * sampled.count and same != (hottest.line.file, hottest.line.function):
            return passed
    return None if INSTALLED in hottest.line.file else hottest


def quote(sampled: Sampled | None, what: str) -> tuple[str, ...]:
    """Return the sentence that names the functions with the most samples of ``what``; nothing without samples."""
    if sampled is None or not sampled.functions:
        return ()
    first, *others = sampled.functions[:QUOTED]
    words = (
        f"{units.count(first.count)} of {units.count(sampled.count)} samples {what} were in {where(first)}"
        f"{_called(first)}"
    )
    for other in others:
        if other.count >= WORTH_SHARE * sampled.count:
            words += f", {units.count(other.count)} in {where(other)}{_called(other)}"
    return (f"{words} (sampled by {_by(sampled)}).", *quote_library(first))


def quote_visits(what: str, visits: RareVisits) -> tuple[str, ...]:
    """Return the sentence about code that runs rarely."""
    times = f"about {units.counted(visits.count, 'time')}" if visits.count > 1 else "once"
    often = f", once in {units.number(visits.every_steps)} steps," if visits.count > 1 else ""
    return (f"{what} ran {times}{often} for {units.duration(visits.each_ns)} each (from py-spy's samples).",)


def _called(function: HotFunction) -> str:
    """Return `` and called at train.py:7`` if one line of another function makes all calls."""
    caller = function.caller
    if caller is None or caller.function == function.line.function:
        return ""
    return f" and called at {place(caller, '')}"


def quote_library(function: HotFunction) -> tuple[str, ...]:
    """Return the sentence that names the library functions that a line calls; nothing if it calls few."""
    library = function.library
    if library is None or library.count < LIBRARY_SHARE * function.count:
        return ()
    named: dict[str, LibraryCall] = {}
    for call in (library.main, *library.inner):
        if call is not None:
            named.setdefault(library_name(call), call)
    if not named:
        return ()
    words = ", ".join(f"{units.count(call.count)} in {name}" for name, call in named.items())
    return (
        f"{units.count(library.count)} of them were in libraries that line {function.line.line} calls: {words}.",
    )


def main_library(function: HotFunction | None) -> LibraryCall | None:
    """Return the library function that a function, on its main line, spends most of its time in; None if none is."""
    if function is None or function.library is None:
        return None
    library = function.library
    is_main = library.count >= max(MAIN_LIBRARY_SHARE * function.on_line, MAIN_SHARE * function.count)
    return library.main if is_main else None


def library_name(call: LibraryCall) -> str:
    """Return e.g. ``PIL's ImageFile.load``."""
    return f"{call.package}'s {call.function}"


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


def join_passes(function: HotFunction, loop: int) -> str:
    """Return what to change at a line in a loop whose passes do not depend on each other."""
    return (
        f"Do the work of all passes of the loop around {place(function.line, '')}, which begins at line {loop}, in one "
        "operation on a whole tensor or batch."
    )

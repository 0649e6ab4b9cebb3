from __future__ import annotations

from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop.library_calls import LibraryCall, LibraryTime
from perfwrap.measures.loop.stacks import HotFunction
from perfwrap.rules.stack_samples import quote_library


def test_a_library_function_is_named_once() -> None:
    outer, again, inner = (
        LibraryCall("gym", name, count) for name, count in (("Env.step", 6), ("Env.step", 1), ("Env.add", 1))
    )
    function = HotFunction(Line("a.py", 7, "main"), 6, 6, LibraryTime(6, outer, (inner, again)))
    (words,) = quote_library(function)
    assert words == "6 of them were in libraries that line 7 calls: 6 in gym's Env.step, 1 in gym's Env.add."

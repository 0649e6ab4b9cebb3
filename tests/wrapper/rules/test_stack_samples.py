from __future__ import annotations

from msgspec.structs import replace
from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop.library_calls import LibraryCall, LibraryTime
from perfwrap.measures.loop.stacks import HotFunction, Sampled
from perfwrap.rules.stack_samples import quote, quote_library


def test_a_library_function_is_named_once() -> None:
    outer, again, inner = (
        LibraryCall("gym", name, count) for name, count in (("Env.step", 6), ("Env.step", 1), ("Env.add", 1))
    )
    function = HotFunction(Line("a.py", 7, "main"), 6, 6, LibraryTime(6, outer, (inner, again)))
    (words,) = quote_library(function)
    assert words == "6 of them were in libraries that line 7 calls: 6 in gym's Env.step, 1 in gym's Env.add."


def test_the_line_that_calls_the_function_is_named_if_it_is_in_another_function() -> None:
    hot = HotFunction(
        Line("/p/geometry.py", 50, "normals"), 6, 6, None, Line("/p/conditions.py", 74, "error")
    )
    (words,) = quote(Sampled(10, (hot,), "py-spy"), "there")
    assert words == (
        "6 of 10 samples there were in normals at geometry.py:50 and called at conditions.py:74 (sampled by py-spy)."
    )
    nested = replace(hot, caller=Line("/p/geometry.py", 61, "normals"))
    assert "called" not in quote(Sampled(10, (nested,), "py-spy"), "there")[0]

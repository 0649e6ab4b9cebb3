from __future__ import annotations

from msgspec.structs import replace
from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop.library_calls import LibraryCall, LibraryTime
from perfwrap.measures.loop.stacks import HotFunction, Sampled
from perfwrap.rules.stack_samples import main_function, quote, quote_library


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


def _made(draw: int, sort: int, of_call: str) -> Sampled:
    functions = [HotFunction(Line("/p/graph.py", 80, "draw"), draw, draw)]
    if sort:
        functions.append(HotFunction(Line("/p/graph.py", 60, "negatives"), sort, sort))
    passed = HotFunction(Line("/p/graph.py", 62, of_call), 92, 70)
    return Sampled(100, tuple(functions), "py-spy", passed=passed)


def test_a_function_with_work_of_its_own_is_the_main_one_in_place_of_one_that_it_calls() -> None:
    assert main_function(_made(60, 32, "negatives")) == HotFunction(
        Line("/p/graph.py", 62, "negatives"), 92, 70
    )


def test_a_function_that_only_calls_others_or_one_that_takes_nearly_all_leaves_the_main_one() -> None:
    for found in (
        _made(60, 0, "dispatch"),
        _made(60, 32, "dispatch"),
        _made(60, 9, "negatives"),
        _made(80, 12, "negatives"),
        _made(60, 30, "draw"),
    ):
        main = main_function(found)
        assert main is not None
        assert main.line == Line("/p/graph.py", 80, "draw")

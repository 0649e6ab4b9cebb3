from __future__ import annotations

import pytest
from perfwrap.measures.loop.library_calls import (
    LibraryCall,
    LibraryTime,
    common_caller,
    common_lines,
    library_time,
)

SITE = "/venv/lib/python3.11/site-packages"
MAIN = "<module> (/w/a.py:3)"


def stack(*frames: str) -> str:
    return ";".join([MAIN, *frames])


def frame(function: str, file: str = "rl/ppo.py", line: int = 1) -> str:
    return f"{function} ({SITE}/{file}:{line})"


LEARN, ROLL = frame("PPO.learn"), frame("PPO.collect")
ENV, LOAD = frame("Env.step", "gym/env.py"), "JSONDecoder.decode (/usr/lib/python3.11/json/decoder.py:3)"


def test_the_deepest_function_with_half_of_the_samples_is_named_with_what_it_calls() -> None:
    stacks = [
        (stack(LEARN, ROLL, ENV), 40),
        (stack(LEARN, ROLL, LOAD), 30),
        (stack(LEARN, ROLL), 10),
        (stack(LEARN, frame("PPO.train")), 20),
        (stack(), 5),
        ("<module> (/w/b.py:3);" + LEARN, 100),
    ]
    assert library_time(stacks, "/w/a.py", 3) == LibraryTime(
        100,
        LibraryCall("rl", "PPO.collect", 80),
        (LibraryCall("gym", "Env.step", 40), LibraryCall("json", "JSONDecoder.decode", 30)),
    )


def test_wrappers_are_not_named() -> None:
    stacks = [(stack(LEARN, frame("decorate_context", "torch/utils/x.py")), 20)]
    found = library_time(stacks, "/w/a.py", 3)
    assert found is not None
    assert found.main == LibraryCall("rl", "PPO.learn", 20)


def test_code_that_the_compiler_wrote_is_named_after_it() -> None:
    name = "ab" + "x" * 49
    stacks = [(stack(f"Runner.call (/tmp/torchinductor_me/ab/c{name}.py:90)"), 20)]
    found = library_time(stacks, "/w/a.py", 3)
    assert found is not None
    assert found.main == LibraryCall("torch.compile", "Runner.call", 20)


def test_torchs_autograd_is_known_to_compute_derivatives() -> None:
    stacks = [(stack(frame("grad", "torch/autograd/__init__.py")), 20)]
    found = library_time(stacks, "/w/a.py", 3)
    assert found is not None
    assert found.main == LibraryCall("torch", "grad", 20, derives=True)


def test_samples_in_modules_that_the_line_calls_are_counted() -> None:
    call = frame("_call_impl", "torch/nn/modules/module.py")
    stacks = [
        (stack(call, frame("forward", "torch/nn/modules/linear.py")), 20),
        (stack(frame("cat", "torch/x.py")), 5),
    ]
    found = library_time(stacks, "/w/a.py", 3)
    assert found is not None
    assert (found.count, found.in_modules) == (25, 20)


def test_samples_that_are_spread_have_no_main_function() -> None:
    stacks = [(stack(frame(name)), 10) for name in ("a", "b", "c")]
    found = library_time(stacks, "/w/a.py", 3)
    assert found is not None
    assert (found.count, found.main, len(found.inner)) == (30, None, 2)


@pytest.mark.parametrize("stacks", [[], [(stack(), 10)], [(stack("<frame> (<string>:1)"), 10)]])
def test_a_line_that_calls_no_library_has_none(stacks: list[tuple[str, int]]) -> None:
    assert library_time(stacks, "/w/a.py", 3) is None


def test_the_common_lines_are_those_of_the_program_inside_modules() -> None:
    call = frame("Module._call_impl", "torch/nn/modules/module.py")
    outer, inner = "Net.forward (/w/net.py:9)", "Part.forward (/w/part.py:4)"
    stacks = [
        (stack(call, outer, call, inner, frame("linear", "torch/nn/functional.py")), 6),
        (stack(call, outer, call, "Part.forward (/w/part.py:5)"), 2),
        (stack(call, "Net.forward (/w/net.py:10)"), 2),
    ]
    assert common_lines(stacks) == [
        ("/w/net.py", "Net.forward", 9, 8),
        ("/w/part.py", "Part.forward", 4, 6),
    ]
    assert common_lines([(stack(outer), 5)]) == []


def test_the_line_that_calls_a_function_is_known_if_nearly_all_samples_have_the_same() -> None:
    inner = "normals (/p/geometry.py:50);_count (/venv/lib/python3.11/site-packages/numpy/core.py:7)"
    one = f"main (/p/train.py:9);error (/p/conditions.py:74);{inner}"
    other = f"main (/p/train.py:9);test (/p/conditions.py:80);{inner}"
    assert common_caller([(one, 9), (other, 1)], "/p/geometry.py") == ("/p/conditions.py", "error", 74)
    assert common_caller([(one, 6), (other, 4)], "/p/geometry.py") is None
    assert common_caller([("main (/p/train.py:9)", 3)], "/p/train.py") is None

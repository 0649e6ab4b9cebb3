from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop import section_frames
from perfwrap.measures.loop.python_gaps import PythonGap
from perfwrap.measures.loop.section_frames import Bounds, Calls, is_in

Frames = list[tuple[str, str, int]]

MAIN, UPDATE = "<module>", "SAC.update"


def stack(*frames: tuple[str, str, int]) -> str:
    return ";".join(f"{name} ({file}:{line})" for name, file, line in frames)


def section(after: Line, until_line: int | None = None) -> PythonGap:
    return PythonGap(after, until_line, "sync", "forward", 3, 1.0, 3, 0.2)


class Known:
    """Evidence that consists of stacks."""

    def __init__(self, *stacks: Frames) -> None:
        self.stacks = list(stacks)

    def get(self, measure: Any, *key: Any) -> Any:
        return self.stacks if measure is section_frames._stacks else measure(self, *key)


@pytest.mark.parametrize(
    ("line", "until_line", "bounds", "inside"),
    [
        (84, None, Bounds(43, next_event=86), False),
        (50, None, Bounds(43, next_event=86), True),
        (84, 90, Bounds(43, next_event=None), True),
        (84, 60, Bounds(43), False),
    ],
    ids=["nearer to the next event", "nearer to its own", "before the end", "after the end"],
)
def test_a_line_belongs_to_the_section_of_the_nearest_event(
    line: int, until_line: int | None, bounds: Bounds, inside: bool
) -> None:
    gap = section(Line("/w/agent.py", 43, "episode"), until_line)
    found = stack((MAIN, "/w/train.py", 7), ("Agent.episode", "/w/agent.py", line), ("f", "/w/net.py", 3))
    assert is_in(found, gap, bounds, False) is inside


@pytest.mark.parametrize(("line", "inside"), [(84, True), (80, True), (50, False), (87, False)])
def test_a_line_before_the_event_after_the_section_belongs_to_it(line: int, inside: bool) -> None:
    gap = section(Line("/w/net.py", 93, "predict"))
    bounds = Bounds(93, until=Line("/w/agent.py", 86, "episode"), last_event=43)
    assert is_in(stack(("Agent.episode", "/w/agent.py", line)), gap, bounds, False) is inside


@pytest.mark.parametrize(("line", "inside"), [(92, True), (58, True), (70, False), (85, False)])
def test_code_between_the_calls_of_two_events_belongs_to_the_section_that_may_wrap_around_the_loop(
    line: int, inside: bool
) -> None:
    gap = section(Line("/w/sac.py", 104, UPDATE))
    bounds = Bounds(104, until=Line("/w/net.py", 9, "act"), calls=Calls("/w/main.py", MAIN, 85, 61))
    assert is_in(stack((MAIN, "/w/main.py", line), ("step", "/w/env.py", 5)), gap, bounds, False) is inside


def test_the_calls_of_two_events_are_in_the_innermost_function_that_calls_both() -> None:
    evidence: Any = Known(
        [("start", "/w/cli.py", 3), (MAIN, "/w/main.py", 85), (UPDATE, "/w/sac.py", 70)],
        [("start", "/w/cli.py", 3), (MAIN, "/w/main.py", 61), ("act", "/w/net.py", 9)],
        [("start", "/w/cli.py", 3), (MAIN, "/w/main.py", 61)],
    )
    trainer: Any = None
    found = section_frames._find_calls(
        evidence, trainer, Line("/w/sac.py", 104, UPDATE), Line("/w/net.py", 9, "act")
    )
    assert found == Calls("/w/main.py", MAIN, 85, 61)


def test_of_several_calls_those_that_follow_each_other_count() -> None:
    evidence: Any = Known(
        *([("episode", "/w/a.py", line), ("predict", "/w/net.py", 90)] for line in (66, 77)),
    )
    trainer: Any = None
    found = section_frames._find_calls(
        evidence, trainer, Line("/w/net.py", 93, "predict"), Line("/w/a.py", 86, "episode")
    )
    assert found == Calls("/w/a.py", "episode", 77, 86)


def test_events_without_a_common_caller_have_no_calls() -> None:
    evidence: Any = Known([(MAIN, "/w/main.py", 85), (UPDATE, "/w/sac.py", 70)])
    trainer: Any = None
    assert (
        section_frames._find_calls(
            evidence, trainer, Line("/w/sac.py", 104, UPDATE), Line("/w/other.py", 9, "act")
        )
        is None
    )

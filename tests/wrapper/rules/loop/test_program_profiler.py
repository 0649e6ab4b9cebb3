from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.loop import gc_pause, logging_overhead, python_overhead, slow_steps
from perfwrap.rules.loop import program_profiler as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

FULL = 2


def write(loop: Any, stop: float, every: int = 10, steps: int = 40, collecting: float = 0) -> None:
    for step in range(steps):
        loop.compute()
        if step % every == every - 1:
            with loop.journal.inside("profiler", "step", line="train.py:31:main"):
                loop.span("profiler", stop, "key_averages", line=9)
                if collecting:
                    loop.span("gc", collecting, "", FULL)
                loop.python(1)


def test_its_calls_are_found_at_the_line_that_takes_most(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, stop=100)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.03)
    assert str(finding.location) == "train.py:9"
    assert "key_averages at train.py:9 50 %, step at train.py:31" in finding.evidence[0]
    assert len(finding.evidence) == 1


def test_the_collections_during_its_calls_are_its_own(
    loop: Any, find: Callable[[Rule], Finding], ask: Callable[[Rule], Answer]
) -> None:
    write(loop, stop=50, collecting=50)
    assert find(rule).share == pytest.approx(0.5, abs=0.03)
    assert isinstance(ask(gc_pause), Clear)


@pytest.mark.parametrize("other", [slow_steps, python_overhead])
def test_no_other_rule_blames_something_else(loop: Any, ask: Callable[[Rule], Answer], other: Rule) -> None:
    write(loop, stop=100, collecting=50)
    assert isinstance(ask(other), Clear)


def test_only_its_finding_is_shown(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, stop=100, collecting=50)
    found = {finding.rule for finding in diagnosis().findings}
    assert rule.__name__.rpartition(".")[2] in found
    assert not found & {
        "gc_pause",
        "slow_steps",
        "python_overhead",
        logging_overhead.__name__.rpartition(".")[2],
    }


def test_collections_that_its_objects_make_longer_are_its_own_too(
    loop: Any, find: Callable[[Rule], Finding], diagnosis: Callable[[], Any]
) -> None:
    for step in range(60):
        loop.compute()
        if step % 4 == 0:
            loop.span("gc", 2 if step <= 20 else 40, "", FULL)
        if step == 20:
            loop.span("profiler", 30, "events", line=9)
    finding = find(rule)
    assert finding.share == pytest.approx((30 + 9 * 38) / (60 * 10 + 6 * 2 + 9 * 40 + 30), abs=0.03)
    assert "garbage collections" in finding.evidence[2]
    assert "gc_pause" not in {found.rule for found in diagnosis().findings}


def test_collections_that_were_as_long_before_are_the_programs(
    loop: Any, ask: Callable[[Rule], Answer], find: Callable[[Rule], Finding]
) -> None:
    for step in range(60):
        loop.compute()
        loop.span("gc", 5 + step / 20, "", FULL)
        if step == 20:
            loop.span("profiler", 2, "events", line=9)
    assert isinstance(ask(rule), Clear)
    assert find(gc_pause).share > 0.2


def test_collections_before_the_loop_are_no_measure_for_those_in_it(
    loop: Any, ask: Callable[[Rule], Answer], find: Callable[[Rule], Finding]
) -> None:
    for _ in range(3):
        loop.span("gc", 1, "", FULL)
        loop.python(100)
    for step in range(60):
        loop.compute()
        if step == 20:
            loop.span("profiler", 2, "events", line=9)
        if step > 20:
            loop.span("gc", 5, "", FULL)
    assert isinstance(ask(rule), Clear)
    assert find(gc_pause).share > 0.2


def test_a_few_collections_that_only_follow_it_have_no_known_cause(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(200):
        loop.compute()
        if step == 20:
            loop.span("profiler", 20, "events", line=9)
        if step == 150:
            loop.span("gc", 200, "", FULL)
    finding = find(gc_pause)
    assert (finding.verdict, finding.severity, finding.experiment) == (None, "minor", None)
    assert "without the program's torch.profiler" in finding.advice


def test_collections_without_any_before_are_the_programs(
    loop: Any, ask: Callable[[Rule], Answer], find: Callable[[Rule], Finding]
) -> None:
    loop.compute()
    loop.span("profiler", 2, "events", line=9)
    for _ in range(40):
        loop.compute()
        loop.span("gc", 5, "", FULL)
    assert isinstance(ask(rule), Clear)
    assert find(gc_pause).share > 0.2


def test_steps_that_it_records_are_not_slow_for_another_reason(
    loop: Any, ask: Callable[[Rule], Answer], find: Callable[[Rule], Finding]
) -> None:
    for step in range(100):
        if step % 10 == 0:
            loop.journal.fact("user_profiler", step > 0)
        loop.compute(**{"forward": 20, "backward": 30} if step >= 10 and step % 10 == 0 else {})
        if step % 10 == 0:
            loop.journal.fact("user_profiler", False)
    answer = ask(slow_steps)
    assert isinstance(answer, Clear)
    assert "torch.profiler records these steps" in answer.why


def test_the_same_steps_without_it_are_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for step in range(100):
        loop.compute(**{"forward": 20, "backward": 30} if step >= 10 and step % 10 == 0 else {})
    assert "every 10th" in find(slow_steps).sentence


def test_a_single_recording_is_said_to_matter_less_in_a_longer_run(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    for step in range(40):
        loop.compute()
        if step == 20:
            loop.span("profiler", 100, "events", line=9)
    assert find(rule).evidence[1] == "All of them are in 1 step: the share is smaller in a longer run."


def test_short_calls_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, stop=0.1)
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, stop=100)
    journal = loop.journal
    journal.describe(
        "COVERAGE", "probe/program_profiler", journal.text("it failed"), start=journal.now, duration=1
    )
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["program_profiler"]
    assert outcome.state == "not checked"

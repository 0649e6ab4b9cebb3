"""What the rules about wasted work share with the others: no time is reported twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import polars as pl
import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.model import Diagnosis

from tests.wrapper.drawn_windows import Step

STEPS = 40


def write(loop: Any, line: int, before: float = 0, after: float = 0) -> None:
    """Write steps of 10 ms with 4 ms of the program's own code, in which as much is wasted at a line."""
    loop.journal.fact("model/Net/device", "cpu")
    for _ in range(STEPS):
        loop.span("data", 0.1, "loader/1", 32, 20)
        loop.span("forward", 2, "Net", 3, 21)
        loop.python(before)
        loop.span("backward", 3, line=24)
        loop.span("optimizer", 0.9, "SGD#1", line=25)
        loop.python(after)

    def body(step: Step) -> None:
        step.train(step.call("mm", step.batch(), line=21, ns=6_000_000))
        step.call("sin", step.batch(), line=("metrics.py:5 error", f"train.py:{line} main"), ns=4_000_000)

    loop.run.step = body


@pytest.mark.parametrize(
    ("line", "place"),
    [(22, {"before": 4}), (26, {"after": 4}), (19, {"after": 4})],
    ids=["between the passes", "after the optimizer", "before the next batch"],
)
def test_a_section_that_is_mostly_wasted_work_is_that_finding_alone(
    loop: Any, diagnosis: Callable[[], Diagnosis], line: int, place: dict[str, float]
) -> None:
    write(loop, line, **place)
    found = {finding.rule: finding.share for finding in diagnosis().findings if not finding.informational}
    assert found == {"unused_work": pytest.approx(0.4, abs=0.02)}


def test_a_section_with_other_code_is_its_own_finding(loop: Any, diagnosis: Callable[[], Diagnosis]) -> None:
    write(loop, 22, after=4)
    rules = {finding.rule for finding in diagnosis().findings}
    assert {"unused_work", "python_overhead"} <= rules


def test_work_inside_a_phase_explains_no_section_beside_it(loop: Any) -> None:
    write(loop, 26, after=4)
    loop.run.step = lambda step: (
        step.call("sin", step.batch(), line="train.py:26 main", ns=4_000_000),
        step.train(step.call("mm", step.batch(), line=21, ns=6_000_000)),
    )
    timeline = loop.run.read()
    forward = timeline.spans.filter(pl.col("operation") == "forward")["start"][STEPS // 2]
    windows = [
        msgspec.structs.replace(window, opened=forward - window.ends[0])
        for window in timeline.operation_windows
    ]
    found = diagnose(replace(timeline, operation_windows=tuple(windows))).findings
    assert {"unused_work", "python_overhead"} <= {finding.rule for finding in found}


def test_the_verdict_on_work_inside_the_phases_states_the_share_of_the_phases(
    loop: Any, diagnosis: Callable[[], Diagnosis]
) -> None:
    loop.journal.fact("model/Net/device", "cpu")
    for _ in range(STEPS):
        loop.compute()
        loop.python(0.6)
    loop.run.step = lambda step: (
        step.call("sin", step.batch(), line="train.py:25 main", ns=4_000_000),
        step.train(step.call("mm", step.batch(), line=21, ns=6_000_000)),
    )
    verdict = diagnosis().verdict
    assert verdict.share == pytest.approx(0.94, abs=0.01)
    assert "of the training loop is model work. Largest finding: 39 %" in verdict.sentence

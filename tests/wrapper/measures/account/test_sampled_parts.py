"""The account against py-spy's samples: they agree, contradict each other, or are too few to tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.journal_format import GRAD, TRAINING
from perfwrap.measures.account.sampled_parts import find_contradiction, sampled_parts
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import find_trainers
from perfwrap.timeline.model import Timeline, empty

MS = 1_000_000
STEPS = 200
TRUTH = {"fetch": 40, "forward": 20, "backward": 30, "optimizer": 10}
"""Milliseconds of a step."""


def sampled(run: Any, **operations: int) -> Timeline:
    """Return a training, with so many samples of each operation, evenly over the loop; ``own`` has none."""
    journal = run.journal()
    begin = journal.now
    for _ in range(STEPS):
        journal.span("data", 40 * MS, "loader/1", 32, "train.py:5:main")
        journal.span("forward", 20 * MS, "Net", TRAINING | GRAD, "train.py:9:main")
        journal.span("backward", 30 * MS, "backward", line="train.py:10:main")
        journal.span("optimizer", 10 * MS, "SGD#1", line="train.py:11:main")
    end = journal.now
    timeline = run.read()
    (trainer,) = Evidence(timeline).get(find_trainers)
    nothing = empty("stacks")
    names = [name for name, count in operations.items() for _ in range(count)]
    rows = [
        {
            **dict.fromkeys(nothing.columns),
            "time": begin + (end - begin) * (number + 1) // (len(names) + 1),
            "track": trainer.thread,
            "weight": 1,
            "operation": None if name == "own" else name,
            "source": "py-spy",
        }
        for number, name in enumerate(names)
    ]
    return replace(timeline, stacks=pl.DataFrame(rows, schema=nothing.schema))


def contradiction(timeline: Timeline) -> tuple[str, float, float] | None:
    evidence = Evidence(timeline)
    (trainer,) = evidence.get(find_trainers)
    return evidence.get(find_contradiction, trainer)


def test_samples_that_agree_change_nothing(run) -> None:
    timeline = sampled(run, **{name: 5 * part for name, part in TRUTH.items()})
    assert contradiction(timeline) is None
    evidence = Evidence(timeline)
    (trainer,) = evidence.get(find_trainers)
    found = sampled_parts(evidence, trainer)
    assert found is not None
    assert found.shares["data"] == (pytest.approx(0.4, abs=0.01), pytest.approx(0.4, abs=0.02))
    assert diagnose(timeline).verdict.id == "data-bound"


def test_a_contradiction_ends_in_no_verdict(run) -> None:
    timeline = sampled(run, fetch=20, forward=300, backward=150, optimizer=50)
    found = contradiction(timeline)
    assert found is not None
    part, recorded, seen = found
    assert (part, recorded) == ("forward", pytest.approx(0.2, abs=0.01))
    assert seen > 0.5
    diagnosis = diagnose(timeline)
    assert diagnosis.verdict.id == "unknown"
    assert "contradict each other (forward: 20 % and 5" in diagnosis.verdict.sentence


def test_a_few_samples_contradict_nothing(run) -> None:
    assert contradiction(sampled(run, forward=60)) is None


def test_time_that_py_spy_cannot_name_contradicts_nothing(run) -> None:
    assert contradiction(sampled(run, own=200, forward=100, backward=150, optimizer=50)) is None

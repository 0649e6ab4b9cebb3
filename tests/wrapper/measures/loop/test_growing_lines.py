"""Lines with ever more samples are distinguished from lines that run more often or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop import growing_lines
from perfwrap.measures.loop.growing_lines import GrowingLine, find_growing_lines
from perfwrap.measures.main_trainer import find_main_trainer

MS = 1_000_000
STEPS = 240
Found = Callable[[], tuple[GrowingLine, ...]]


@pytest.fixture
def found(run: Any, monkeypatch: pytest.MonkeyPatch) -> Found:
    """Return a function that looks for lines; the samples in the journal are taken for py-spy's."""
    monkeypatch.setattr(growing_lines, "OUTSIDE", "recorder")

    def look() -> tuple[GrowingLine, ...]:
        evidence = Evidence(run.read())
        trainer = evidence.get(find_main_trainer)
        assert trainer is not None
        return evidence.get(find_growing_lines, trainer)

    return look


def step(journal: Any, forward: float = 8) -> None:
    """Write the model's training, with a sample in each of its parts."""
    journal.span("forward", round(forward * MS), "Net", 3, "train.py:21:main")
    sample(journal, "forward", 21)
    journal.span("backward", 10 * MS, "", 0, "train.py:23:main")
    sample(journal, "backward", 23)
    journal.span("optimizer", 2 * MS, "SGD#1", 0, "train.py:24:main")


def sample(journal: Any, operation: str, line: int, function: str = "main", count: int = 1) -> None:
    """Write samples of one line."""
    label = FIELD_SEPARATOR.join((operation, "train.py", str(line), function))
    journal.record(INSTANTS["STACK"], journal.now - MS, MS, count, label, 1)


def start(run: Any) -> Any:
    return run.journal(opened=1_000 * MS, threads=2)


def test_a_line_with_ever_more_samples_is_found_with_its_time_per_step(run: Any, found: Found) -> None:
    journal = start(run)
    for number in range(STEPS):
        step(journal)
        journal.python(MS)
        sample(journal, "", 30)
        if number % 10 == 9:
            journal.python(20 * MS)
            sample(journal, "", 41, "write", count=1 + number // 20)
    (line,) = found()
    assert (line.line.line, line.line.function) == (41, "write")
    # At the end 12 samples in 10 steps, whose 20 samples of the model's training are 200 ms.
    assert line.first_ns == pytest.approx(0.5 * MS, abs=0.5 * MS)
    assert line.last_ns == pytest.approx(12 * MS, rel=0.15)
    assert line.claims is None  # no recorded section of the program is in that function


def test_a_line_of_the_recorded_section_claims_its_last_segments(run: Any, found: Found) -> None:
    journal = start(run)
    for number in range(STEPS):
        step(journal)
        journal.python(round(0.05 * number * MS))
        if number % 4 == 3:
            sample(journal, "", 41, count=1 + number // 40)
    (line,) = found()
    assert line.claims is not None
    assert line.share == pytest.approx(6 / 26, abs=0.05)


def test_even_lines_and_lines_that_start_late_are_none(run: Any, found: Found) -> None:
    journal = start(run)
    for number in range(STEPS):
        step(journal)
        journal.python(3 * MS)
        sample(journal, "", 30)
        if number > STEPS // 2:
            sample(journal, "", 41, "evaluate", count=2)
    assert not found()


def test_nothing_is_named_if_the_model_works_longer_too(run: Any, found: Found) -> None:
    journal = start(run)
    for number in range(STEPS):
        step(journal, forward=8 * (1 + number / STEPS))
        journal.python(3 * MS)
        sample(journal, "", 41, "write", count=1 + number // 20)
    assert not found()


def test_samples_in_garbage_collections_do_not_count(run: Any, found: Found) -> None:
    journal = start(run)
    for number in range(STEPS):
        step(journal)
        journal.python(MS)
        if number % 4 == 3:
            with journal.inside("gc", "", 2):
                journal.python(10 * MS)
                sample(journal, "", 41, "write", count=1 + number // 40)
    assert not found()


def test_a_machine_that_gets_faster_for_the_model_only_names_no_line(run: Any, found: Found) -> None:
    journal = start(run)
    for number in range(STEPS):
        slow = 4 - 3 * number / STEPS
        journal.span("forward", round(8 * slow * MS), "Net", 3, "train.py:21:main")
        sample(journal, "forward", 21, count=round(3 * slow))
        journal.span("backward", round(10 * slow * MS), "", 0, "train.py:23:main")
        journal.span("optimizer", round(2 * slow * MS), "SGD#1", 0, "train.py:24:main")
        journal.python(6 * MS)
        sample(journal, "", 41, "write", count=2)
    assert not found()

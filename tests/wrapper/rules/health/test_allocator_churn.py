from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.rules.health import allocator_churn as rule
from perfwrap.rules.model import NotChecked

from tests.wrapper.rules.health.snapshots import diagnosed, event

KEPT = [(1, 100.0, 5)]


def found(diagnosis: Diagnosis) -> Any:
    """Return the finding about churn, None if there is none."""
    return next((each for each in diagnosis.findings if each.rule == "allocator_churn"), None)


def churn(times: int, line: int = 31) -> list[dict[str, Any]]:
    """Return a history in which a segment is requested and returned again and again, the latter at a line."""
    history = []
    for number in range(times):
        history += [
            event("segment_alloc", 20, 1_000 + number, 7),
            event("alloc", 10, 1_000 + number, 7),
            event("free_requested", 10, 1_000 + number, 7),
            event("segment_free", 20, 1_000 + number, line),
        ]
    return history


def test_memory_that_goes_to_the_driver_and_back_is_found_at_its_line(tmp_path: Path) -> None:
    diagnosis = diagnosed(tmp_path / "a.pickle", KEPT, churn(790))
    assert diagnosis.verdict.id == "memory-bound"
    assert "790 times, mostly at train.py:31" in diagnosis.verdict.sentence
    assert diagnosis.verdict.share is None
    finding = found(diagnosis)
    assert (finding.severity, finding.location.line) == ("major", 31)
    assert any("16 GB were returned" in text or "GiB were returned" in text for text in finding.evidence)
    assert "empty_cache" in finding.advice


@pytest.mark.parametrize(
    "history",
    [
        churn(5),
        [event("segment_alloc", 20, 1_000 + number) for number in range(500)],
        [event("segment_free", 20, 1_000 + number) for number in range(500)],
    ],
    ids=["few", "only requests", "only returns"],
)
def test_an_allocator_that_fills_or_empties_once_is_clear(
    tmp_path: Path, history: list[dict[str, Any]]
) -> None:
    diagnosis = diagnosed(tmp_path / "a.pickle", KEPT, history)
    assert found(diagnosis) is None
    assert diagnosis.verdict.id == "memory-use"


def test_without_a_history_it_is_not_checked(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step()
    assert isinstance(gpu_loop.ask(rule), NotChecked)

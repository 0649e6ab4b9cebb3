from __future__ import annotations

from pathlib import Path
from typing import Any

from perfwrap.rules.health import memory_at_peak as rule
from perfwrap.rules.model import NotChecked

from tests.wrapper.rules.health.snapshots import diagnosed, event


def test_the_lines_of_the_peak_are_named_and_not_those_of_the_end(tmp_path: Path) -> None:
    history = [
        event("alloc", 30, 2, 12),
        event("alloc", 60, 3, 31),
        event("free_requested", 60, 3, 99),
        event("free_requested", 30, 2, 99),
        event("alloc", 5, 4, 44),
    ]
    diagnosis = diagnosed(tmp_path / "a.pickle", [(1, 10.0, 5), (4, 5.0, 44)], history)
    assert diagnosis.verdict.id == "memory-use"
    (finding,) = [each for each in diagnosis.findings if each.rule == "memory_at_peak"]
    assert finding.severity == "note"
    assert "At the peak, 105 MB" in finding.title or "At the peak, 100 MiB" in finding.title
    assert "60 % of it from train.py:31" in finding.title
    assert finding.location is not None
    assert finding.location.line == 31
    named = finding.evidence[0]
    assert "train.py:12" in named
    assert "train.py:5" in named
    assert "train.py:44" not in named


def test_blocks_that_were_freed_in_the_history_but_are_older_have_no_line(tmp_path: Path) -> None:
    history = [event("alloc", 10, 3, 31), event("free_requested", 40, 9, 99)]
    diagnosis = diagnosed(tmp_path / "a.pickle", [(3, 10.0, 31)], history)
    (finding,) = [each for each in diagnosis.findings if each.rule == "memory_at_peak"]
    assert "80 %" not in finding.title
    assert "lines that were not recorded" in finding.evidence[0]
    assert "train.py:31" in finding.title


def test_without_a_history_the_snapshot_itself_is_described(tmp_path: Path) -> None:
    diagnosis = diagnosed(tmp_path / "a.pickle", [(1, 30.0, 5), (2, 10.0, 6)], [])
    assert diagnosis.verdict.id == "memory-use"
    assert "When the snapshot was taken" in diagnosis.verdict.sentence
    assert "75 % of it from train.py:5" in diagnosis.verdict.sentence


def test_without_a_snapshot_it_is_not_checked(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step()
    assert isinstance(gpu_loop.ask(rule), NotChecked)

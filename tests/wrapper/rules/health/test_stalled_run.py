from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.health import stalled_run as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

MS = 1_000_000
TOLD = {
    "silent_s": 62.0,
    "steps": 20,
    "sentence": "no step has ended for 62 s: rank 1 is missing, it is at train.py:15 (main)",
    "missing": ["rank 1"],
    "where": {"name": "main", "file": "/home/me/train.py", "line": 15, "function": "main"},
    "file": "stalls/here-1.json",
}


def watch(loop: Any, steps: int = 20) -> Any:
    """Write steps while the monitor looks for stalls."""
    for _ in range(steps):
        loop.compute()
    monitor = loop.monitor()
    monitor.describe("COVERAGE", "stalls", start=monitor.now)
    return monitor


def stall(loop: Any, monitor: Any, how: str = "", lasted_s: float = 90.0, **reported: object) -> None:
    """Write that the job hung, and how that ended."""
    monitor.now = loop.journal.now + 62_000 * MS
    monitor.describe("MARK", "stall", monitor.text(json.dumps({**TOLD, **reported})))
    monitor.now += 30_000 * MS
    if how:
        ended = {"how": how, "lasted_s": lasted_s, "file": "here-1.json"}
        monitor.describe("MARK", "stall_end", monitor.text(json.dumps(ended)))
    loop.journal.now = monitor.now


def end(run: Any, **how: int) -> None:
    run.folder.write_manifest({"command": ["python", "train.py"], "exit": how})


def test_a_continuing_stall_is_reported_with_the_rank_and_the_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    monitor = watch(loop)
    stall(loop, monitor, "steps resumed")
    loop.compute()
    finding = find(rule)
    assert finding.sentence == "The training hung for 90 s and continued: rank 1 kept the others waiting."
    assert str(finding.location) == "train.py:15"
    assert "stalls/here-1.json" in finding.evidence[1]
    assert "same calls in the same order" in finding.advice
    assert finding.share > 0.9
    assert finding.severity == "minor"


@pytest.mark.parametrize("how", ["", "the command ended"])
def test_one_that_ended_the_run_is_critical(
    loop: Any, run: Any, find: Callable[[Rule], Finding], how: str
) -> None:
    stall(loop, watch(loop), how)
    end(run, signal=15)
    finding = find(rule)
    assert finding.severity == "critical"
    assert "hung after 20 steps and did not continue" in finding.sentence
    assert finding.share == 0.0


def test_a_worker_that_hangs_is_answered_with_the_loaders_timeout(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    reported = {
        "missing": [],
        "sentence": "no step has ended for 62 s; the DataLoader worker 7 hangs in a batch",
    }
    stall(loop, watch(loop), "", **reported)
    assert "DataLoader(timeout=...)" in find(rule).advice


def test_waiting_after_the_last_step_of_a_program_that_ended_well_is_no_stall(
    loop: Any, run: Any, ask: Callable[[Rule], Answer]
) -> None:
    stall(loop, watch(loop), "the command ended")
    end(run, code=0)
    assert isinstance(ask(rule), Clear)


def test_steps_all_the_time_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    watch(loop)
    loop.sample("host", "cpu_cores_busy", 1.0)
    assert isinstance(ask(rule), Clear)


def test_without_anybody_who_looks_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.compute()
    answer = ask(rule)
    assert isinstance(answer, NotChecked)
    assert "--no-monitors" in answer.why


def test_a_mark_that_was_cut_short_costs_only_its_words(loop: Any, find: Callable[[Rule], Finding]) -> None:
    monitor = watch(loop)
    monitor.now = loop.journal.now
    monitor.describe("MARK", "stall", monitor.text('{"silent_s": 62.0, "sen'))
    assert find(rule).location is None

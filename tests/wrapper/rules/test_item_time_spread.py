from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules import item_time_spread as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

MS = 1_000_000


def write(loop: Any, facts: str, spread: bool = True) -> Any:
    """One batch in ten takes 100 ms, the others 4 (or all 14): a single worker has four batches ahead at most."""
    times = [99.0] + [3.0] * 9 if spread else [13.0]
    loop.loader(num_workers=1, prefetch_factor=2, workers="101")
    worker = loop.run.journal(pid=101, role="worker", ppid=100, opened=1_000 * MS, worker_id=0)
    if facts:
        worker.fact("sample_times", facts)
    done, asked, taken = 1_000.0, 1_000.0, []
    for number in range(120):
        begin = max(done, taken[number - 2]) if number >= 2 else done
        worker.span("idle", round(begin * MS) - worker.now, "worker")
        with worker.inside("fetch", "Data", 32):
            worker.span(
                "getitem", round(times[number % len(times)] * MS), "Data.__getitem__", 32, "train.py:7:get"
            )
            worker.span("collate", 1 * MS, "pad", 64)
        done = worker.now / MS
        loop.journal.queue(1 if done <= asked else 0)
        loop.batch(max(0.05, done - asked))
        taken.append(loop.journal.now / MS)
        loop.compute(20, 20, 2)
        asked = loop.journal.now / MS
    return worker


def test_single_slow_samples_are_found_where_they_are_made(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, "3840 100000 120000 95000000 96000000")
    loop.cores(8)
    finding = find(rule)
    assert str(finding.location) == "train.py:7"
    assert "960x" in finding.title
    best, worst = finding.saving
    # 100 ms against 42 of a step, with one batch ahead of the one in the making: some 15 ms in ten steps.
    assert 0.8 < best < worst < 1
    assert finding.share == pytest.approx(1 - best, abs=0.03)


def test_samples_that_are_alike_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "3840 100000 120000 130000 140000")
    loop.cores(8)
    assert isinstance(ask(rule), Clear)


def test_samples_that_nobody_timed_are_not_judged(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "")
    loop.cores(8)
    assert isinstance(ask(rule), NotChecked)


def test_workers_without_a_core_tell_nothing(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "3840 100000 120000 95000000 96000000")
    for metric, value in {"running_share": 0.3, "disk_wait_share": 0.0, "cpu_cores": 0.1}.items():
        loop.sample("process/101", metric, value)
    answer = ask(rule)
    assert isinstance(answer, NotChecked)
    assert "took the cores" in answer.why

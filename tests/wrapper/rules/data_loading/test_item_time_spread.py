from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import item_time_spread as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

MS = 1_000_000


def write(loop: Any, facts: str, slow: float = 99.0) -> Any:
    """One batch in ten takes 100 ms, the others 4: a single worker has four batches ahead at most."""
    times = [slow] + [3.0] * 9
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


def test_slow_samples_that_no_order_makes_up_for_are_to_be_made_fewer(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, "3840 100000 120000 895000000 896000000", slow=899.0)
    loop.cores(8)
    finding = find(rule)
    # Made even, batches of 94 ms would still hold up steps of 42; without the slow ones none is late.
    assert "no batch slower than the median" in " ".join(finding.evidence)
    assert "use a shorter timeout" in finding.advice
    best, worst = finding.saving
    assert best == pytest.approx(42 / 122, rel=0.15)
    assert best < worst < 1


def test_batches_that_are_all_too_slow_are_not_explained_by_a_few_samples(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    loop.loader(num_workers=1, prefetch_factor=2, workers="101")
    worker = loop.run.journal(pid=101, role="worker", ppid=100, opened=1_000 * MS, worker_id=0)
    worker.fact("sample_times", "3840 100000 120000 95000000 96000000")
    for number in range(120):
        worker.span("idle", 0, "worker")
        with worker.inside("fetch", "Data", 32):
            worker.span("getitem", (80 + number % 10) * MS, "Data.__getitem__", 32, "train.py:7:get")
        loop.journal.queue(0)
        loop.batch(40 + number % 10)
        loop.compute(20, 20, 2)
    loop.cores(8)
    assert isinstance(ask(rule), Clear)


def test_samples_that_are_alike_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "3840 100000 120000 130000 140000")
    loop.cores(8)
    assert isinstance(ask(rule), Clear)


def test_samples_that_were_not_timed_are_not_judged(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "")
    loop.cores(8)
    assert isinstance(ask(rule), NotChecked)


def test_workers_without_a_core_give_no_figure(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "3840 100000 120000 95000000 96000000")
    for metric, value in {"running_share": 0.3, "disk_wait_share": 0.0, "cpu_cores": 0.1}.items():
        loop.sample("process/101", metric, value)
    answer = ask(rule)
    assert isinstance(answer, NotChecked)
    assert "used the CPU too often" in answer.why

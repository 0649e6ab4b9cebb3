from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfwrap.rules.data_loading import shallow_prefetch as rule
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


def test_a_queue_that_runs_empty_in_bursts_is_found_with_the_length_that_it_needs(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, "")
    loop.cores(8)
    finding = find(rule)
    assert finding.experiment == "prefetch=4"
    assert "prefetch_factor=4 instead of 2" in finding.advice
    assert str(finding.location) == "train.py:12"
    best, worst = finding.saving
    assert 0.85 < best < worst < 1


def test_even_batches_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, "", spread=False)
    loop.cores(8)
    assert isinstance(ask(rule), Clear)


def test_busy_workers_are_another_problem(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.loader(num_workers=1, prefetch_factor=2, workers="101")
    for _ in range(60):
        loop.batch(30)
        loop.compute()
    loop.worker(0, 39)
    loop.cores(8)
    assert isinstance(ask(rule), Clear)


def test_too_few_batches_are_not_played(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.loader(num_workers=1, prefetch_factor=2, workers="101")
    for _ in range(60):
        loop.batch(30)
        loop.compute()
    loop.worker(0, 390)
    assert isinstance(ask(rule), NotChecked)

"""Records of loaders and workers about the making of batches are read correctly."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.data_loading.batch_making import ReadyBatches, SampleTimes
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import find_trainers

GETITEM, COLLATE = "Data.__getitem__", "collate"


def loader_of(run: Any) -> Any:
    """Return the only loader of the only trainer."""
    evidence = Evidence(run.read())
    (loader,) = evidence.get(find_loaders, evidence.get(find_trainers)[0])
    return loader


def write_worker(run: Any, pid: int, batches: int = 20, **facts: object) -> Any:
    """Write a worker that makes batches of 80 ns and waits 20 ns before each."""
    worker = run.journal(pid=pid, role="worker", ppid=100, **facts)
    worker.now = 1_500
    worker.span("loader_start", 100, "worker")
    for _ in range(batches):
        worker.span("idle", 20, "worker")
        begin = worker.now
        with worker.inside("fetch", "Data", 4):
            worker.span("getitem", 50, GETITEM, 4, "data.py:7:Data.__getitem__")
            worker.span("collate", 30, COLLATE, 4_096)
        assert worker.now == begin + 80
    return worker


def write_trainer(run: Any, workers: int = 2, waits: int = 40) -> Any:
    """Write a trainer that waits 10 ns for each batch."""
    journal = run.journal(**{"loader/1/num_workers": workers})
    journal.now = 1_400
    journal.span("loader_start", 50, "loader/1", workers)
    for number in range(waits):
        if workers:
            journal.queue(3 if number % 4 else 1.5)
        journal.data(10)
        journal.optimizer(90)
    return journal


def test_batches_of_workers_are_timed_by_what_the_workers_recorded(run) -> None:
    write_trainer(run).fact("loader/1/workers", "101 102")
    for pid in (101, 102):
        write_worker(run, pid, worker_id=pid - 101, sample_times=f"{pid} 12 13 14 {pid}")
    loader = loader_of(run)
    making = loader.making
    assert (loader.fetch_ns, loader.fetch_basis) == (80, "measured in the workers")
    assert (making.getitem_ns, making.collate_ns, making.batch_bytes) == (50, 30, 4_096)
    assert (making.getitem, making.getitem_line) == (GETITEM, Line("data.py", 7, GETITEM))
    assert (making.collate, making.collate_line) == (COLLATE, None)
    assert making.workers_seen == 2
    assert making.idle_share == pytest.approx(0.2, abs=0.01)
    assert making.worker_start_ns == (1_500 + 100) - 1_400
    assert making.samples == SampleTimes(203, 12, 14, 102)


def test_the_queue_says_how_far_the_workers_were_ahead(run) -> None:
    write_trainer(run)
    write_worker(run, 101)
    assert loader_of(run).ready == ReadyBatches(3.0, 10, 10 * 10, 0.75)


def test_workers_of_another_loader_do_not_count(run) -> None:
    journal = write_trainer(run)
    journal.fact("loader/1/workers", "101")
    journal.fact("loader/2/workers", "102")
    journal.fact("loader/2/num_workers", 1)
    write_worker(run, 101, batches=5)
    write_worker(run, 102, batches=9)
    making = loader_of(run).making
    assert (making.batches, making.workers_seen) == (5, 1)


def test_thinned_batches_of_workers_count_in_full(run) -> None:
    write_trainer(run).fact("loader/1/workers", "101")
    worker = write_worker(run, 101, batches=10)
    worker.describe("THIN", start=worker.now, value=-1)
    worker.sum("fetch", worker.now, 10, 10 * 40, "Data")
    worker.now += 500
    worker.describe("THIN", start=worker.now, value=2)
    making = loader_of(run).making
    assert (making.batches, making.fetch_ns) == (20, 60)
    assert making.getitem_ns == pytest.approx(60 * 50 / 80)


def test_without_workers_the_split_comes_from_inside_of_the_waits(run) -> None:
    journal = run.journal(**{"loader/1/num_workers": 0, "sample_times": "120 3 4 5 6"})
    for _ in range(30):
        with journal.inside("data", "loader/1", 4), journal.inside("fetch", "Data", 4):
            journal.span("getitem", 6, GETITEM, 4)
            journal.span("collate", 2, COLLATE, -1)
        journal.optimizer(92)
    loader = loader_of(run)
    assert (loader.fetch_ns, loader.fetch_basis, loader.wait_ns) == (8, "measured", 8 * 30)
    assert (loader.making.getitem_ns, loader.making.collate_ns, loader.making.batch_bytes) == (6, 2, None)
    assert loader.making.samples == SampleTimes(120, 3, 5, 6)
    assert loader.making.idle_share is None


def test_sums_of_what_lies_inside_of_waits_take_no_time_of_the_account(run) -> None:
    journal = run.journal()
    for _ in range(20):
        journal.step()
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    journal.sum("data", begin, 30, 600, "loader/1")
    for operation in ("fetch", "getitem", "collate"):
        journal.sum(operation, begin, 30, 590, "inside")
    journal.python(3_000)
    journal.describe("THIN", start=journal.now, value=2)
    for _ in range(4):
        journal.step()
    evidence = Evidence(run.read())
    assert evidence.get(find_account, evidence.get(find_trainers)[0]).ns["data"] == 24 * 10 + 600


def test_where_nothing_was_recorded_inside_nothing_is_said(run) -> None:
    journal = run.journal(**{"loader/1/num_workers": 0})
    for _ in range(30):
        journal.step()
    loader = loader_of(run)
    assert (loader.making, loader.ready) == (None, None)

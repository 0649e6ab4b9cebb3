"""GPU time is next to the host's account and shows how busy the GPU was in each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.intervals import covered, union
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_work import GpuWork, find_gpu_work
from perfwrap.measures.trainers import find_trainers

US = 1_000
STREAM = 9


def host_step(journal: Any) -> list[tuple[str, int, int]]:
    """Write a step of 1 ms; return its phases."""
    journal.data(100 * US)
    phases = []
    for operation, duration in (("forward", 300 * US), ("backward", 400 * US), ("optimizer", 200 * US)):
        phases.append((operation, journal.now, duration))
        getattr(journal, operation)(duration)
    return phases


def begin(run: Any) -> Any:
    """Begin a journal that knows a stream."""
    journal = run.journal(opened=10**9)
    journal.name_thread(STREAM, "cuda/0 stream 0", 0)
    return journal


def waiting(journal: Any, steps: int) -> None:
    """Write steps of a GPU that waits for its host in every phase."""
    for _ in range(steps):
        for operation, start, duration in host_step(journal):
            journal.gpu(operation, start, duration)


def ahead(journal: Any, steps: int) -> None:
    """Write steps whose GPU is five of them behind, and never idle."""
    for _ in range(steps):
        for operation, start, duration in host_step(journal):
            # The gap of the data wait belongs to the forward pass, since the GPU does not wait for data.
            early = 100 * US if operation == "forward" else 0
            journal.gpu(operation, start + 5000 * US - early, duration + early, (5000 - early // US, 5000))


def work_of(run: Any) -> GpuWork | None:
    """Return the GPU's work for the only trainer."""
    timeline = run.read()
    (trainer,) = find_trainers(Evidence(timeline))
    return Evidence(timeline).get(find_gpu_work, trainer)


def test_a_gpu_that_waits_for_its_host_is_idle_between_the_phases(run: Any) -> None:
    waiting(begin(run), 40)
    work = work_of(run)
    assert work is not None
    assert work.busy_share == (0.0, pytest.approx(0.9))
    assert work.idle_share == pytest.approx(0.1)
    assert work.lead_ns == 0
    assert set(work.table["duration"]) == {1000 * US}
    assert set(work.table["idle_ns"]) == {100 * US}


def test_a_gpu_that_is_behind_its_host_is_surely_busy(run: Any) -> None:
    ahead(begin(run), 40)
    work = work_of(run)
    assert work is not None
    assert work.busy_share == (1.0, 1.0)
    assert work.idle_share == 0
    assert work.lead_ns == 5000 * US


def test_steps_after_some_that_were_not_timed_do_not_count(run: Any) -> None:
    journal = begin(run)
    ahead(journal, 30)
    journal.now += 10**9
    for _ in range(10):
        host_step(journal)
    ahead(journal, 10)
    timeline = run.read()
    (trainer,) = find_trainers(Evidence(timeline))
    work = Evidence(timeline).get(find_gpu_work, trainer)
    assert work is not None
    counted = set(work.table["index"])
    assert counted & set(range(30)) == set(range(min(counted), 30))
    assert counted & set(range(30, 100)) == set(range(41, 50))
    assert work.busy_share == (1.0, 1.0)


def test_where_nothing_was_timed_the_gpu_is_not_called_idle(run: Any) -> None:
    journal = run.journal(opened=10**9)
    for _ in range(40):
        host_step(journal)
    assert work_of(run) is None


def test_gpu_time_is_on_a_track_of_its_own_and_the_account_stays_as_it_is(make_run: Any) -> None:
    accounts = []
    for write in (ahead, lambda journal, steps: [host_step(journal) for _ in range(steps)]):
        run = make_run()
        write(begin(run), 40)
        timeline = run.read()
        (trainer,) = find_trainers(Evidence(timeline))
        accounts.append(Evidence(timeline).get(find_account, trainer))
    with_gpu, without = accounts
    assert with_gpu.segments.equals(without.segments)
    assert with_gpu.ns == without.ns
    assert sum(with_gpu.ns.values()) == with_gpu.total_ns


def test_a_stream_is_a_track_of_its_process_and_no_thread(run: Any) -> None:
    waiting(begin(run), 2)
    timeline = run.read()
    (row,) = timeline.tracks.filter(kind="stream").iter_rows(named=True)
    (process,) = timeline.tracks.filter(kind="process")["id"]
    assert (row["name"], row["parent"], row["pid"]) == ("cuda/0 stream 0", process, 100)
    spans = timeline.spans.filter(track=row["id"])
    assert set(spans["operation"]) == {"gpu"} == set(timeline.spans.filter(operation="gpu")["operation"])
    assert spans["name"].to_list() == ["forward", "backward", "optimizer"] * 2


intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), min_size=1, max_size=12)


@given(intervals, st.lists(st.tuples(st.integers(0, 70), st.integers(0, 30)), min_size=1, max_size=5))
def test_what_intervals_cover_is_what_counting_says(
    busy: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    start, length = np.array(busy, dtype=np.int64).T
    begins, lengths = np.array(asked, dtype=np.int64).T
    found = covered(union([(start, start + length)]), begins, begins + lengths)
    counted = [
        sum(any(a <= at < a + b for a, b in busy) for at in range(begin, begin + length))
        for begin, length in asked
    ]
    assert found.tolist() == counted

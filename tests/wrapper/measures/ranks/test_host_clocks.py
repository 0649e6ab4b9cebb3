"""The offset of two clocks is found from exchanges, to within an error that holds it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.analysis.joined_runs import align_clocks
from perfwrap.measures.ranks.host_clocks import aligned, find_offsets

MS = 1_000_000


def exchanges(offset: int, steps: int, seed: int, drift: int = 0) -> pl.DataFrame:
    """Return what ranks on two clocks see of exchanges that end when the last one has come."""
    chance, rows = Random(seed), []
    for step in range(steps):
        came = [step * 20 * MS + chance.randrange(5 * MS) for _ in range(4)]
        for rank, begin in enumerate(came):
            left = max(came) + chance.randrange(MS // 10)
            # What is to be added to the second clock's times is the offset: it shows that much less.
            shown = (offset + drift * step) if rank > 1 else 0
            rows.append((step, int(rank > 1), begin - shown, left - shown))
    return pl.DataFrame(rows, schema=["step", "clock", "begin", "end"], orient="row")


@given(offset=st.integers(-(10**15), 10**15), steps=st.integers(5, 60), seed=st.integers(0, 999))
def test_the_true_offset_lies_within_the_stated_error(offset: int, steps: int, seed: int) -> None:
    found = find_offsets(exchanges(offset, steps, seed))[1]
    assert found.proven and found.exchanges == steps
    assert abs(found.offset_ns - offset) <= found.error_ns <= 6 * MS


def test_clocks_that_drift_apart_are_reported_as_not_proven() -> None:
    found = find_offsets(exchanges(0, 50, 1, drift=MS))[1]
    assert not found.proven
    assert found.error_ns > 10 * MS


def test_too_few_exchanges_and_the_first_clock_have_no_offset() -> None:
    assert find_offsets(exchanges(7, 4, 0)) == {}


def rank(run: Any, host: str, number: int, opened: int, wall: int, late: int, backend: str) -> None:
    """Write the steps of a rank of DDP's, whose passes end when both have come."""
    journal = run.journal(
        pid=100 + number, host=host, opened=opened, wall=wall, rank=number, distributed_backend=backend
    )
    journal.fact("parallel/1/kind", "DistributedDataParallel")
    for _ in range(number):
        journal.describe("CLOCK", value=wall)  # Hosts record their clocks as often as they have time.
    for step in range(30):
        lead = late if step % 2 == number else 0
        journal.python(MS + lead)
        journal.forward(MS)
        journal.backward(2 * MS + (late - lead))
        journal.optimizer(MS)


def test_hosts_whose_wall_clocks_differ_are_put_on_one_clock(make_run: Callable[[], Any]) -> None:
    run = make_run()
    rank(run, "one", 0, 10**9, 10**18, MS // 10, "gloo")
    rank(run, "two", 1, 7 * 10**12, 10**18 + 300 * MS, MS // 10, "gloo")
    timeline, offsets = aligned(run.read())
    found = offsets["two"]
    assert found is not None and abs(found.offset_ns + 300 * MS) <= found.error_ns < 3 * MS
    ends = (
        timeline.spans.filter(pl.col("operation") == "backward").group_by("track").agg(pl.col("start").max())
    )
    assert ends["start"].max() - ends["start"].min() < 3 * MS
    assert timeline.spans["start"].is_sorted()
    reported = align_clocks(run.read())
    assert reported.run["clock_uncertainty_ns"] == found.error_ns
    assert any(
        "two were aligned with the clock of one, by at least 30 exchanges" in warning
        for warning in reported.warnings
    )


def test_where_the_host_does_not_wait_wall_clocks_are_all_there_is_and_that_is_said(
    make_run: Callable[[], Any],
) -> None:
    run = make_run()
    rank(run, "one", 0, 10**9, 10**18, MS, "nccl")
    rank(run, "two", 1, 7 * 10**12, 10**18 + 300 * MS, MS, "nccl")
    timeline = run.read()
    assert aligned(timeline) == (timeline, {"two": None})
    assert "by their wall clocks only" in align_clocks(timeline).warnings[-1]

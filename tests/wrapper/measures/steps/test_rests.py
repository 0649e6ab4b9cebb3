"""Steps that the probes rested in: counted exactly, and their time shared out as the steps in detail have it."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from perfwrap.journal_format import GRAD, TRAINING
from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.syncs import find_syncs
from perfwrap.measures.recorder.own_cost import find_own_cost
from perfwrap.measures.steps.steps import find_steps
from perfwrap.measures.steps.validation import find_validation
from perfwrap.measures.trainers import find_trainers

REST = -1


def step(journal: Any, unit: int = 1) -> None:
    """Write a step of 100 units in detail; a unit has that many nanoseconds."""
    journal.span("data", 20 * unit, "loader/1", 32, "train.py:5:main")
    journal.python(10 * unit)
    with journal.inside("forward", "Net", TRAINING | GRAD):
        journal.python(16 * unit)
        journal.span("sync", 4 * unit, "Tensor.item", line="train.py:9:forward")
    journal.span("backward", 30 * unit, "backward", line="train.py:10:main")
    journal.python(10 * unit)
    journal.span("optimizer", 10 * unit, "SGD#1", line="train.py:11:main")


def rest(journal: Any, steps: int = 30, longer: int = 0, unit: int = 1) -> None:
    """Write a pause of that many equal steps, ``longer`` by a time of which nothing is known."""
    begin = journal.now
    journal.describe("THIN", start=begin, value=REST)
    journal.sum("data", begin, steps, 20 * steps * unit, "loader/1")
    journal.sum("optimizer", begin, steps, 0, "SGD#1")
    journal.python((100 * steps + longer) * unit)
    journal.describe("THIN", start=journal.now, value=8)


def evidence_of(run: Any) -> tuple[Evidence, Any]:
    """Return the evidence of a run and its only trainer."""
    evidence = Evidence(run.read())
    (trainer,) = evidence.get(find_trainers)
    return evidence, trainer


def shares(account: Account) -> dict[str, float]:
    """Return the parts that there are."""
    return {part: pytest.approx(share, abs=0.01) for part, share in account.shares.items() if share}


def test_epochs_without_detail_between_validations_that_never_end_are_counted(run) -> None:
    """A loader may be asked for no more batches than there are: then its iteration has no end."""
    journal = run.journal()
    for epoch in range(8):
        journal.span("loader_start", 5, "loader/1")
        if epoch in (3, 4):
            rest(journal)
        else:
            for _ in range(30):
                step(journal)
        journal.span("loader_start", 5, "loader/2")
        for _ in range(3):
            journal.span("data", 20, "loader/2", 32)
            journal.span("forward", 16, "Net")
        journal.span("data_end", 5, "loader/1")
    evidence, trainer = evidence_of(run)
    assert evidence.get(find_steps, trainer).count == 8 * 30


@pytest.mark.parametrize("unit", [1, 10_000, 100_000_000], ids=["100ns", "1ms", "10s"])
def test_steps_in_paused_detail_are_counted_and_have_the_shares_of_those_in_detail(run, unit: int) -> None:
    journal = run.journal()
    for _ in range(5):
        for _ in range(30):
            step(journal, unit)
        rest(journal, unit=unit)
    evidence, trainer = evidence_of(run)
    account = evidence.get(find_account, trainer)
    assert evidence.get(find_steps, trainer).count == 300
    assert sum(account.ns.values()) == account.total_ns
    assert shares(account) == {
        "data": 0.2,
        "forward": 0.16,
        "sync": 0.04,
        "backward": 0.3,
        "optimizer": 0.1,
        "python": 0.2,
    }
    (sync,) = evidence.get(find_syncs, trainer)
    assert sync.per_step == pytest.approx(1, abs=0.02)
    assert sync.where is not None and sync.where.line == 9
    assert evidence.get(find_loaders, trainer)[0].batches == pytest.approx(300, abs=2)


def test_waits_in_paused_detail_get_the_line_that_detail_recorded(run) -> None:
    journal = run.journal()
    for _ in range(40):
        step(journal)
    rest(journal)
    for _ in range(5):
        step(journal)
    evidence, trainer = evidence_of(run)
    segments = evidence.get(find_account, trainer).segments.filter("estimated", pl.col("part") == "data")
    assert set(segments["line"]) == {5}
    assert segments.select((pl.col("end") - pl.col("start")).sum()).item() == 600


def test_a_long_gap_in_paused_detail_is_blamed_on_nothing_recorded(run) -> None:
    journal = run.journal()
    for _ in range(40):
        step(journal)
    rest(journal, longer=30_000)
    for _ in range(5):
        step(journal)
    evidence, trainer = evidence_of(run)
    segments = evidence.get(find_account, trainer).segments.filter("estimated")
    lengths = segments.group_by("part").agg((pl.col("end") - pl.col("start")).sum().alias("ns"))
    found = dict(lengths.iter_rows())
    assert found["backward"] <= 1.5 * 30 * 30
    unknown = segments.filter(pl.col("part") == "python", pl.col("line").is_null())
    assert unknown.select((pl.col("end") - pl.col("start")).sum()).item() > 25_000


def validate(journal: Any) -> None:
    """Write a validation of 400 ns that needs no loader."""
    for _ in range(4):
        journal.span("forward", 100, "Net", 0, "train.py:30:validate")


def test_validations_without_a_loader_get_the_additional_time_of_paused_detail(run) -> None:
    journal = run.journal()
    for _ in range(8):
        for number in range(30):
            step(journal)
            if number % 10 == 9:
                validate(journal)
        rest(journal, longer=3 * 400)
    evidence, trainer = evidence_of(run)
    account = evidence.get(find_account, trainer)
    assert sum(account.ns.values()) == account.total_ns
    assert account.shares["validation"] == pytest.approx(400 / 1400, abs=0.015)
    assert account.shares["backward"] == pytest.approx(300 / 1400, abs=0.015)
    assert account.shares["python"] == pytest.approx(200 / 1400, abs=0.015)


def test_paused_detail_no_longer_than_its_steps_held_no_validation(run) -> None:
    journal = run.journal()
    for number in range(8):
        for _ in range(30):
            step(journal)
        if number == 4:
            validate(journal)
        rest(journal)
    evidence, trainer = evidence_of(run)
    estimated = evidence.get(find_account, trainer).segments.filter("estimated")
    assert "validation" not in set(estimated["part"].to_list())


def test_batches_of_a_validation_in_paused_detail_are_no_steps(run) -> None:
    journal = run.journal()
    for _ in range(3):
        journal.span("loader_start", 5, "loader/1")
        for _ in range(30):
            step(journal)
        journal.span("data_end", 1, "loader/1")
        journal.validate(batches=4, end=False)
        begin = journal.now
        journal.describe("THIN", start=begin, value=REST)
        journal.sum("data", begin, 50, 200, "loader/2")
        journal.python(600)
        journal.describe("THIN", start=journal.now, value=8)
        journal.span("data_end", 1, "loader/2")
    for _ in range(5):
        step(journal)
    evidence, trainer = evidence_of(run)
    assert evidence.get(find_steps, trainer).count == 95
    assert evidence.get(find_validation, trainer).count == 3


def test_what_the_probes_cost_is_measured_against_paused_detail(run) -> None:
    journal = run.journal()
    for number in range(20):
        for _ in range(16):
            step(journal)
        begin = journal.now
        journal.describe("THIN", start=begin, value=REST)
        journal.sum("data", begin, 100, 2_000, "loader/1")
        journal.sum("optimizer", begin, 100, 0, "SGD#1")
        journal.python(100 * 90 + number % 3)
        journal.describe("THIN", start=journal.now, value=8)
    evidence, trainer = evidence_of(run)
    cost = evidence.get(find_own_cost, trainer)
    assert cost.measured
    assert cost.low <= cost.share <= cost.high
    steps = evidence.get(find_steps, trainer).table.filter("steady")
    extra = cost.probes_ns - 13_000 * steps.height
    assert extra == pytest.approx(10 * steps["detailed"].sum(), rel=0.1)


def test_steps_that_differ_too_much_to_be_compared_leave_an_estimate(run) -> None:
    """A machine that is busy with something else: some stretches take a millisecond a step, others two."""
    journal = run.journal()
    for number in range(20):
        pace = 1_000_000 * (1 + number % 2)
        for _ in range(16):
            step(journal)
            journal.python(pace)
        begin = journal.now
        journal.describe("THIN", start=begin, value=REST)
        journal.sum("data", begin, 100, 2_000, "loader/1")
        journal.sum("optimizer", begin, 100, 0, "SGD#1")
        journal.python(100 * (1_000_000 * (1 + (number // 2) % 2)))
        journal.describe("THIN", start=journal.now, value=8)
    evidence, trainer = evidence_of(run)
    cost = evidence.get(find_own_cost, trainer)
    assert not cost.measured
    assert cost.high < 0.1


def test_few_pauses_leave_an_estimate(run) -> None:
    journal = run.journal()
    for _ in range(60):
        step(journal)
    rest(journal)
    for _ in range(5):
        step(journal)
    evidence, trainer = evidence_of(run)
    assert not evidence.get(find_own_cost, trainer).measured


def test_what_runs_between_two_epochs_is_no_part_of_paused_detail(run) -> None:
    journal = run.journal()
    for _ in range(8):
        for _ in range(10):
            step(journal)
        journal.span("data_end", 10, "loader/1", 0, "train.py:5:main")
        journal.python(1_000)
        journal.span("loader_start", 10, "loader/1", 0, "train.py:5:main")
        for _ in range(10):
            step(journal)
        rest(journal)
    evidence, trainer = evidence_of(run)
    account = evidence.get(find_account, trainer)
    # 20 of each step's 100 ns, and what the epochs have between them.
    between = account.segments.filter(after_operation="data_end", part="python")
    assert between.select((pl.col("end") - pl.col("start")).sum()).item() == 8_000
    assert not between["estimated"].any()

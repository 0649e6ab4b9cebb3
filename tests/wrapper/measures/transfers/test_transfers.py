"""Copies between devices are summed by line; their time is the account's transfer part."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.journal_format import FROM_GPU, NON_BLOCKING, PINNED, TO_GPU
from perfwrap.measures.account.account import find_account
from perfwrap.measures.account.lines import Line
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.loop.syncs import find_syncs
from perfwrap.measures.trainers import find_trainers
from perfwrap.measures.transfers.transfers import find_transfers
from perfwrap.rules.needs import why_missing

PAGEABLE, QUICK = 1000 << 8 | TO_GPU, 1000 << 8 | TO_GPU | PINNED | NON_BLOCKING


def evidence_of(run: Any) -> tuple[Evidence, Any]:
    """Return the evidence and its only trainer."""
    evidence = Evidence(run.read())
    return evidence, evidence.get(find_trainers)[0]


def write(journal: Any, *values: int, steps: int = 20, line: str = "train.py:30:main") -> None:
    """Write steps with one copy of 6 ns for each value."""
    for _ in range(steps):
        journal.step()
        for value in values:
            journal.span("transfer", 6, "Tensor.to", value, line)
    journal.optimizer()


def test_copies_are_summed_by_line(run) -> None:
    journal = run.journal()
    write(journal, PAGEABLE, QUICK)
    evidence, trainer = evidence_of(run)
    (line,) = evidence.get(find_transfers, trainer)
    assert (line.name, line.where) == ("Tensor.to", Line("train.py", 30, "main"))
    assert (line.count, line.bytes, line.time_ns, line.direction) == (40, 40_000, 240, "to_gpu")
    assert (line.pinned, line.non_blocking, line.waits) == (0.5, 0.5, False)
    assert line.per_step == pytest.approx(40 / 21)
    assert line.bytes_per_step == pytest.approx(40_000 / 21)
    assert line.share == pytest.approx(240 / evidence.get(find_account, trainer).total_ns)


def test_their_time_is_the_transfer_part_of_the_account(run) -> None:
    write(run.journal(), PAGEABLE)
    evidence, trainer = evidence_of(run)
    account = evidence.get(find_account, trainer)
    assert (
        account.ns["transfer"] == 120 == sum(line.time_ns for line in evidence.get(find_transfers, trainer))
    )
    assert sum(account.ns.values()) == account.total_ns


@pytest.mark.parametrize(
    ("values", "direction", "waits"),
    [
        ((TO_GPU,), "to_gpu", False),
        ((FROM_GPU,), "from_gpu", True),
        ((FROM_GPU | NON_BLOCKING,), "from_gpu", False),
        ((TO_GPU | FROM_GPU,), "both", False),
        ((TO_GPU, FROM_GPU), "both", True),
        ((PINNED,), "to_pinned", False),
    ],
)
def test_directions_are_distinguished_and_only_waiting_copies_are_syncs(
    run, values, direction, waits
) -> None:
    write(run.journal(), *(8 << 8 | value for value in values))
    evidence, trainer = evidence_of(run)
    (line,) = evidence.get(find_transfers, trainer)
    assert (line.direction, line.waits) == (direction, waits)
    syncs = evidence.get(find_syncs, trainer)
    assert bool(syncs) == waits
    assert all(sync.on_gpu and sync.blocked_ns == line.time_ns for sync in syncs)


def test_an_unknown_size_makes_the_sum_unknown(run) -> None:
    write(run.journal(), -1 << 8 | TO_GPU, PAGEABLE)
    evidence, trainer = evidence_of(run)
    (line,) = evidence.get(find_transfers, trainer)
    assert (line.count, line.direction, line.bytes, line.bytes_per_step) == (40, "to_gpu", None, None)


def test_thinned_steps_count_and_scale_the_bytes(run) -> None:
    journal = run.journal()
    write(journal, PAGEABLE)
    begin = journal.now
    journal.describe("THIN", start=begin, value=0)
    label = {"name": "Tensor.to", "line": "train.py:30:main"}
    journal.sum("optimizer", begin, 20, 100, "SGD#1")
    journal.sum("transfer", begin, 20, 120, **label)
    journal.python(2_000)
    journal.describe("THIN", start=journal.now, value=2)
    write(journal, PAGEABLE)
    evidence, trainer = evidence_of(run)
    (line,) = evidence.get(find_transfers, trainer)
    assert (line.count, line.bytes, line.time_ns) == (60, 60_000, 360)


def test_copies_of_a_validation_are_not_those_of_the_loop(run) -> None:
    journal = run.journal()
    for _ in range(3):
        for _ in range(10):
            journal.step()
        journal.span("loader_start", 5, "loader/2")
        for _ in range(3):
            journal.data(4, "loader/2")
            journal.span("transfer", 5, "Tensor.to", PAGEABLE, "train.py:80:evaluate")
            journal.forward(6, flags=0)
        journal.span("data_end", 1, "loader/2")
    evidence, trainer = evidence_of(run)
    assert evidence.get(find_transfers, trainer) == ()


def test_a_probe_that_failed_is_said(run) -> None:
    journal = run.journal()
    write(journal, PAGEABLE)
    journal.describe("COVERAGE", "probe/transfers", journal.text("failed: TypeError: no"), duration=1)
    evidence, _ = evidence_of(run)
    assert "failed: TypeError" in str(evidence.get(why_missing, "transfers"))

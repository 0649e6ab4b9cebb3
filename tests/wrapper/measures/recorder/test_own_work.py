"""The time of the probes in a recorded step is separated from the program's Python by the cost of recording."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from perfwrap.journal_format import GRAD, TRAINING
from perfwrap.measures.account.account import Account, find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.recorder.detail_cost import RECORD_NS
from perfwrap.measures.recorder.own_work import AFTER_HOOKS_NS, BEFORE_HOOKS_NS
from perfwrap.measures.steps.steps import Steps, find_steps
from perfwrap.measures.trainers import find_trainers

US = 1_000
EVENTS = 4
OWN = EVENTS * RECORD_NS
"""What four spans of a step cost it, all of it in the gaps between them."""
HOOKS = BEFORE_HOOKS_NS + AFTER_HOOKS_NS
RESTING = 1_000 * US
"""A step of which nothing is recorded."""


def step(journal: Any, own: int = OWN, python: int = 70 * US) -> None:
    """Write a step in detail of ``RESTING + own``; ``python`` of it is the program's, before the forward pass."""
    journal.data(200 * US)
    journal.python(own // EVENTS + python)
    journal.span("forward", 300 * US, "Net", TRAINING | GRAD)
    journal.python(own // EVENTS)
    journal.backward(350 * US)
    journal.python(own // EVENTS + BEFORE_HOOKS_NS)
    journal.optimizer(50 * US)
    journal.python(own // EVENTS + AFTER_HOOKS_NS)


def rest(journal: Any, steps: int = 40) -> None:
    """Write that many steps with paused detail, which cost nothing to record."""
    begin = journal.now
    journal.describe("THIN", start=begin, value=-1)
    journal.sum("data", begin, steps, 200 * US * steps, "loader/1")
    journal.sum("optimizer", begin, steps, 0, "SGD#1")
    journal.python(RESTING * steps)
    journal.describe("THIN", start=journal.now, value=8)


def measured(run: Any) -> tuple[Steps, Account]:
    """Return steps and account of the only trainer."""
    evidence = Evidence(run.read())
    (trainer,) = evidence.get(find_trainers)
    account = evidence.get(find_account, trainer)
    assert sum(account.ns.values()) == account.total_ns
    return evidence.get(find_steps, trainer), account


def per_step(account: Account, steps: int) -> dict[str, float]:
    """Return microseconds of the parts of a step."""
    return {part: pytest.approx(ns / steps / US, abs=2) for part, ns in account.ns.items() if ns}


def test_own_time_and_torchs_around_its_hooks_are_cut_off_from_the_programs_python(run) -> None:
    journal = run.journal(reached_by="sitecustomize")
    for _ in range(200):
        step(journal)
    steps, account = measured(run)
    assert steps.detail_ns == pytest.approx(OWN)
    expected = {"data": 200, "forward": 300, "backward": 350}
    expected |= {"optimizer": 50 + HOOKS / US, "python": 70, "perfwrap": OWN / US}
    assert per_step(account, account.segments["step"].n_unique()) == expected
    cut = account.segments.filter(pl.col("part") == "perfwrap")
    assert cut["operation"].is_null().all() and cut["line"].is_null().all() and cut["estimated"].all()


def test_nothing_is_cut_off_where_no_recorder_was_inside(run) -> None:
    journal = run.journal()
    for _ in range(200):
        step(journal, own=0)
    steps, account = measured(run)
    assert steps.detail_ns == 0
    assert account.ns["perfwrap"] == 0
    assert per_step(account, account.segments["step"].n_unique())["python"] == 70 + HOOKS / US


def test_gaps_shorter_than_the_probes_work_have_no_python_left(run) -> None:
    journal = run.journal(reached_by="sitecustomize")
    for _ in range(200):
        step(journal, own=OWN // 8, python=0)
    _, account = measured(run)
    assert account.ns["python"] == 0


@pytest.mark.parametrize(("own", "reported"), [(0, OWN), (int(1.5 * OWN), 1.5 * OWN), (5 * OWN, 2 * OWN)])
def test_the_cost_of_recording_is_measured_at_paused_detail_within_the_range_that_records_allow(
    run, own, reported
) -> None:
    journal = run.journal(reached_by="sitecustomize")
    for _ in range(12):
        for _ in range(8):
            step(journal, own)
        rest(journal)
    steps, account = measured(run)
    assert steps.detail_ns == pytest.approx(reported, rel=0.1)
    # The median is that of the steps as they are in most of the run, without recording.
    assert steps.median_ns == pytest.approx(RESTING + own - reported, rel=0.02)
    assert account.share_of(pl.col("part") == "perfwrap") < 0.02

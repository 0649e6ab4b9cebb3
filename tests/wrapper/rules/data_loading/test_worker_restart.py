from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import worker_restart as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, start: float, epochs: int = 10, **settings: object) -> None:
    loop.loader(**{"num_workers": 2, "persistent_workers": False, **settings})
    for _ in range(epochs):
        loop.span("loader_start", start, "loader/1", 2, 20)
        for number in range(8):
            loop.batch(6 if number == 0 else 1)
            loop.compute()
        loop.span("data_end", 2, "loader/1", 0, 20)


def test_workers_started_in_every_epoch_are_found_where_the_loader_is_made(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, start=40)
    finding = find(rule)
    assert finding.share == pytest.approx((40 + 5 + 2) / (40 + 5 + 2 + 8 * 11), abs=0.03)
    assert str(finding.location) == "train.py:12"
    assert "persistent_workers=True" in finding.advice
    best, worst = finding.saving
    assert best < worst < 1


def test_a_loader_that_is_recreated_cannot_keep_its_workers(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, start=40, persistent_workers=True, made_again=True)
    finding = find(rule)
    assert "once, before the epochs" in finding.advice
    assert finding.experiment is None
    assert "persistent_workers=False" not in " ".join(finding.evidence)


def test_its_time_is_not_sold_again_as_waiting(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, start=40)
    shares = {finding.rule: finding.share for finding in diagnosis().findings}
    assert shares["worker_restart"] == pytest.approx(0.35, abs=0.04)
    assert shares.get("data_loader_wait", 0) < 0.12
    assert sum(shares.values()) <= 1.0 + shares.get("compute_bound", 0)


def test_persistent_workers_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, start=40, persistent_workers=True)
    assert isinstance(ask(rule), Clear)


def test_a_quick_start_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.loader(num_workers=2, persistent_workers=False)
    for _ in range(4):
        loop.span("loader_start", 0.5, "loader/1", 2, 20)
        for _ in range(20):
            loop.batch(0.1)
            loop.compute()
        loop.span("data_end", 0.1, "loader/1", 0, 20)
    assert isinstance(ask(rule), Clear)


def test_a_single_epoch_shows_nothing(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.loader(num_workers=2, persistent_workers=False)
    loop.span("loader_start", 400, "loader/1", 2, 20)
    for _ in range(40):
        loop.batch(0.1)
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, start=40)
    journal = loop.journal
    journal.describe(
        "COVERAGE", "probe/data_loader", journal.text("it failed"), start=journal.now, duration=1
    )
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["worker_restart"]
    assert outcome.state == "not checked"
    assert "it failed" in outcome.why

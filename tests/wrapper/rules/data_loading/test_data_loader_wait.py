from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.data_loading import data_loader_wait as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, wait: float, steps: int = 40, **settings: object) -> None:
    loop.loader(**settings)
    for _ in range(steps):
        loop.batch(wait)
        loop.compute()


def test_waiting_for_too_few_workers_is_found_with_the_number_that_keeps_up(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, wait=10, num_workers=2)
    loop.cores(16, busy=3)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert str(finding.location) == "train.py:12"
    assert "num_workers=4 instead of 2" in finding.advice
    assert finding.experiment == "workers=4"


def test_more_workers_are_not_advised_when_all_cores_are_busy(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, wait=10, num_workers=2)
    loop.cores(2, busy=1.95)
    finding = find(rule)
    assert finding.options[0].basis == "all usable cores are busy"
    assert finding.saving[1] == 1.0
    assert finding.experiment == "cached-batch"


def test_a_loader_that_hardly_waits_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, wait=0.1, num_workers=2)
    assert isinstance(ask(rule), Clear)


def test_a_loop_without_a_loader_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(40):
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_what_another_rule_explains_is_reported_once(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, wait=10)
    result = diagnosis()
    outcomes = {outcome.rule: outcome for outcome in result.outcomes}
    assert [finding.rule for finding in result.findings] == ["data_loader_single_process"]
    assert outcomes["data_loader_wait"].state == "clear"
    assert "data_loader_single_process" in outcomes["data_loader_wait"].why


def test_garbage_that_is_collected_in_waits_is_not_reported_as_waiting_again(
    loop: Any, diagnosis: Callable[[], Any]
) -> None:
    loop.loader()
    for _ in range(40):
        with loop.journal.inside("data", "loader/1", 32, "train.py:20:main"):
            loop.python(5)
            loop.span("gc", 5, value=2)
        loop.compute()
    assert "data_loader_wait" not in {finding.rule for finding in diagnosis().findings}


def test_without_steps_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    loop.span("forward", 4, "Net", 3, 21)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["data_loader_wait"]
    assert outcome.state == "not checked"


def test_samples_are_compared_with_collation_where_the_workers_recorded_both(
    loop: Any, find: Callable[[Rule], Finding], run: Any
) -> None:
    write(loop, wait=10, num_workers=2)
    worker = run.journal(pid=101, role="worker", ppid=100, opened=loop.journal.now - 100_000_000)
    with worker.inside("fetch", "Data", 32):
        worker.span("getitem", 30_000_000, "app.data.Data.__getitem__", 32, "data.py:7:Data.__getitem__")
        worker.span("collate", 10_000_000, "torch.utils.data._utils.collate.default_collate", 64)
    words = " ".join(find(rule).evidence)
    assert (
        "Making a batch takes 40 ms: 30 ms for its samples (Data.__getitem__, data.py:7), 10 ms for "
        "collation (default_collate)." in words
    )


def write_ready(loop: Any, wait: float, making_ms: float) -> None:
    loop.loader(num_workers=1, workers="101")
    for _ in range(40):
        loop.journal.queue(2)
        loop.batch(wait)
        loop.compute()
    loop.worker(0, making_ms)


def test_receiving_batches_that_were_ready_is_a_note(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write_ready(loop, wait=1.5, making_ms=5)
    finding = find(rule)
    assert finding.severity == "note"
    assert finding.verdict is None
    assert "that were already ready" in finding.sentence
    assert "larger batches" in finding.advice
    assert "num_workers=0" not in finding.advice


def test_receiving_that_takes_much_of_the_loop_is_no_note(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write_ready(loop, wait=20, making_ms=5)
    finding = find(rule)
    assert finding.severity == "critical"
    assert finding.verdict == "data-bound"
    assert "num_workers=0" in finding.advice
    assert finding.experiment == "workers=0"


def test_without_workers_the_batches_must_still_be_made(loop: Any, find: Callable[[Rule], Finding]) -> None:
    # Receiving takes 12 ms of 22, and making 6.
    write_ready(loop, wait=12, making_ms=5)
    options = find(rule).options
    alone = next(option for option in options if option.experiment == "workers=0")
    assert "Making a batch takes 6 ms, receiving it 12 ms." in alone.advice
    assert 0.5 < alone.saving[0] < 0.7 < alone.saving[1] < 0.8


def test_workers_are_kept_where_making_takes_as_long_as_receiving(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write_ready(loop, wait=6.2, making_ms=5)
    assert all("num_workers=0" not in option.edit for option in find(rule).options)

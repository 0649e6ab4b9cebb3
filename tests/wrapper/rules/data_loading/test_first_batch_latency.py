from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.measures.account.lines import Line
from perfwrap.measures.loop.stacks import HotFunction, Sampled
from perfwrap.rules.data_loading import first_batch_latency as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, first: float, usual: float = 2, persistent: bool = True, epochs: int = 6) -> None:
    loop.loader(num_workers=1, persistent_workers=persistent, workers="101")
    loop.span("loader_start", 5, "loader/1", 1, 20)
    for epoch in range(epochs):
        if epoch and not persistent:
            loop.span("loader_start", 5, "loader/1", 1, 20)
        for number in range(10):
            loop.batch(first if number == 0 else usual)
            loop.compute()
        loop.span("data_end", 1, "loader/1", 0, 20)


def test_long_first_batches_of_persistent_workers_are_found(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, first=80)
    loop.worker(0, 1)
    finding = find(rule)
    assert finding.share == pytest.approx(78 / (80 + 9 * 2 + 10 * 10 + 1), abs=0.05)
    assert str(finding.location) == "train.py:7"
    best, worst = finding.saving
    assert best == pytest.approx(1 - finding.share)
    assert worst == pytest.approx(1 - finding.share / 2)


def test_they_are_found_without_workers_too(loop: Any, find: Callable[[Rule], Finding]) -> None:
    loop.loader()
    for _ in range(6):
        loop.span("loader_start", 0.1, "loader/1", 0, 20)
        for number in range(10):
            loop.batch(60 if number == 0 else 1)
            loop.compute()
        loop.span("data_end", 0.1, "loader/1", 0, 20)
    assert find(rule).share == pytest.approx(59 / 169, abs=0.05)


@pytest.mark.parametrize(
    ("usual", "place"), [(1, "sampler.py:7"), (14, "train.py:12")], ids=["mostly", "a part"]
)
def test_samples_name_the_line_where_first_batches_take_most_of_the_waits(
    loop: Any, find: Callable[[Rule], Finding], monkeypatch: pytest.MonkeyPatch, usual: float, place: str
) -> None:
    hot = HotFunction(Line("sampler.py", 7, "Balanced.__iter__"), 20, 20)
    monkeypatch.setattr(rule, "sampled_making", lambda *_: Sampled(20, (hot,), "py-spy"))
    loop.loader()
    for _ in range(6):
        loop.span("loader_start", 0.1, "loader/1", 0, 20)
        for number in range(10):
            loop.batch(60 if number == 0 else usual)
            loop.compute()
        loop.span("data_end", 0.1, "loader/1", 0, 20)
    finding = find(rule)
    assert str(finding.location) == place
    assert ("Balanced.__iter__ at sampler.py:7" in finding.advice) == (place == "sampler.py:7")


@pytest.mark.parametrize("between", [False, True])
def test_garbage_that_is_collected_in_a_first_batch_is_a_part_of_it(
    loop: Any, find: Callable[[Rule], Finding], between: bool
) -> None:
    loop.loader()
    for _ in range(6):
        if between:
            loop.span("gc", 30, value=2, line=30)
        loop.span("loader_start", 0.1, "loader/1", 0, 20)
        for number in range(10):
            with loop.journal.inside("data", "loader/1", 32, "train.py:20:main"):
                loop.python(1)
                if number == 0:
                    loop.span("gc", 5, value=2)
                    loop.python(60)
            loop.compute()
        loop.span("data_end", 0.1, "loader/1", 0, 20)
    # Five of six epochs begin in the steady loop, which begins with the second step.
    loop_ms = 6 * 175 - 76 + 5 * 30 * between
    assert find(rule).share == pytest.approx(5 * 65 / loop_ms, abs=0.01)


def test_an_empty_queue_alone_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, first=12)
    loop.worker(0, 9)
    assert isinstance(ask(rule), Clear)


def test_workers_that_restart_are_another_problem(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, first=80, persistent=False)
    worker = loop.run.journal(pid=101, role="worker", ppid=100, opened=1_000_000_000)
    worker.span("loader_start", 75_000_000, "worker")
    for _ in range(20):
        worker.span("fetch", 2_000_000, "Data", 32)
    assert isinstance(ask(rule), Clear)


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, first=80)
    journal = loop.journal
    journal.describe(
        "COVERAGE", "probe/data_loader", journal.text("it failed"), start=journal.now, duration=1
    )
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["first_batch_latency"]
    assert outcome.state == "not checked"


@pytest.mark.parametrize(("first", "is_long"), [(1.2, False), (60, True)])
def test_in_paused_detail_only_the_first_wait_itself_counts(
    loop: Any, ask: Callable[[Rule], Answer], first: float, is_long: bool
) -> None:
    # Short steps: most are counted only, and what is summed behind the beginning are the waits of forty batches.
    loop.loader()
    ms = 1_000_000
    for _ in range(20):
        for _ in range(20):
            loop.batch(1)
            loop.compute(0.4, 0.5, 0.1)
        loop.span("data_end", 0.1, "loader/1", 0, 20)
        begin = loop.journal.now
        loop.journal.describe("THIN", start=begin, value=-1)
        loop.span("loader_start", 0.1, "loader/1", 0, 20)
        loop.batch(first)
        loop.journal.sum("data", begin, 39, 39 * ms, "loader/1")
        loop.journal.sum("optimizer", begin, 40, 0, "SGD#1")
        loop.python(79)
        loop.journal.describe("THIN", start=loop.journal.now, value=8)
    answer = ask(rule)
    if not is_long:
        assert isinstance(answer, Clear)
        return
    (finding,) = answer  # type: ignore[misc]
    assert finding.share == pytest.approx((first - 1) / (first + 40 + 79), abs=0.03)
    assert "on average, a normal one 1 ms" in finding.evidence[0]

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from perfwrap.rules.health import host_memory_growth as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

from tests.wrapper.drawn_windows import add_windows

MS = 1_000_000
MIB = 1 << 20
BEGUN = 1_000 * MS
SECONDS = 12


def train(loop: Any, **more: Any) -> None:
    """Write twelve seconds of steps."""
    for _ in range(SECONDS * 10):
        loop.compute(forward=60, backward=35, optimizer=5)


def weigh(loop: Any, mib: Callable[[float], float], pid: int = 100, metric: str = "anonymous_bytes") -> None:
    """Sample a process's memory once a second."""
    for second in range(SECONDS + 1):
        time = BEGUN + second * 1_000 * MS
        loop.monitor().sample(f"process/{pid}", metric, mib(second) * MIB, time)


def note(loop: Any, line: int, old: int, alive: int, number: int = 1, kind: str = "backward") -> None:
    """Write how many graphs of a line were kept."""
    for key, value in (
        ("line", f"train.py\x1f{line}\x1fmain"),
        ("kind", kind),
        ("old", old),
        ("alive", alive),
    ):
        loop.journal.fact(f"live_graph/{number}/{key}", value)


def test_memory_that_rises_to_the_end_is_found_with_how_long_the_rest_lasts(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    train(loop)
    weigh(loop, lambda second: 500 + 20 * second)
    loop.sample("host", "memory_available_bytes", 1200 * MIB)
    finding = find(rule)
    assert "70 GiB per hour" in finding.sentence
    assert finding.severity == "major"
    assert finding.location is None
    assert any("last for 60 s" in words for words in finding.evidence), finding.evidence


def test_the_line_whose_graphs_are_kept_is_named_the_loss_before_the_output(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    note(loop, 21, old=16, alive=16, number=1, kind="forward")
    note(loop, 23, old=12, alive=12, number=2)
    note(loop, 90, old=20, alive=0, number=3)
    train(loop)
    weigh(loop, lambda second: 500 + 20 * second)
    finding = find(rule)
    assert str(finding.location) == "train.py:23"
    assert "12 of 12 checked tensors" in finding.evidence[1]
    assert not any("train.py:90" in words for words in finding.evidence)
    assert ".detach()" in finding.advice


def test_memory_that_grows_with_the_work_may_be_no_leak(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for step in range(SECONDS * 10):
        loop.compute(forward=30 + step / 2, backward=35, optimizer=5)
    weigh(loop, lambda second: 500 + 20 * second)
    loop.sample("host", "memory_available_bytes", 1200 * MIB)
    finding = find(rule)
    assert finding.severity == "minor"
    assert "larger inputs may be the only reason" in finding.evidence[-1]


def test_what_was_kept_counts_although_it_was_let_go_at_the_end(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    note(loop, 23, old=12, alive=12)
    train(loop)
    weigh(loop, lambda second: 500 + 20 * second)
    loop.journal.fact("live_graph/1/alive", 0)
    assert str(find(rule).location) == "train.py:23"


@pytest.mark.parametrize(
    "mib",
    [
        pytest.param(lambda second: 500.0, id="flat"),
        pytest.param(lambda second: 500 + min(300, 100 * second), id="levels off"),
        pytest.param(lambda second: 500 + 200 * (second % 2), id="up and down"),
        pytest.param(lambda second: 500 + 2 * second, id="too little"),
        pytest.param(lambda second: 5000 + 20 * second, id="a small part"),
        pytest.param(lambda second: 500 + (400 if second > 6 else 0), id="one step"),
        pytest.param(lambda second: 900 - 20 * second, id="shrinks"),
    ],
)
def test_memory_that_does_not_go_on_growing_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], mib: Callable[[float], float]
) -> None:
    train(loop)
    weigh(loop, mib)
    assert isinstance(ask(rule), Clear)


def test_mapped_files_that_fill_memory_are_no_growth(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    train(loop)
    weigh(loop, lambda second: 500 + 100 * second, metric="rss_bytes")
    weigh(loop, lambda second: 500.0)
    assert isinstance(ask(rule), Clear)


def worker(run: Any, pid: int = 201) -> None:
    """Begin a worker of the trainer's."""
    run.journal(pid=pid, role="worker", opened=BEGUN, ppid=100)


def test_workers_that_grow_are_found_together(loop: Any, run: Any, find: Callable[[Rule], Finding]) -> None:
    worker(run, 201)
    worker(run, 202)
    train(loop)
    weigh(loop, lambda _: 500.0)
    for pid in (201, 202):
        weigh(loop, lambda second: 200 + 10 * second, pid)
    finding = find(rule)
    assert "2 DataLoader workers grows by 70 GiB per hour" in finding.sentence
    assert "a cache without a limit" in finding.advice


def test_shared_pages_that_workers_copy_are_distinguished_from_what_they_add(
    loop: Any, run: Any, find: Callable[[Rule], Finding]
) -> None:
    worker(run)
    train(loop)
    weigh(loop, lambda _: 500.0)
    weigh(loop, lambda _: 500.0, 201)
    weigh(loop, lambda second: 100 + 25 * second, 201, "pss_bytes")
    assert "copy pages" in find(rule).advice


def test_without_samples_it_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    train(loop)
    assert isinstance(ask(rule), NotChecked)


def test_a_leak_is_before_what_costs_little_time(loop: Any, diagnosis: Callable[[], Any]) -> None:
    train(loop)
    weigh(loop, lambda second: 500 + 20 * second)
    assert diagnosis().findings[0].rule == "host_memory_growth"


def test_memory_of_perfwraps_own_dataflow_windows_is_no_growth(
    loop: Any, run: Any, ask: Callable[[Rule], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(loop)
    weigh(loop, lambda second: 500 + 20 * second)
    timeline = run.read()
    drawn = add_windows(timeline, lambda step: step.train(step.batch()))
    moved = [
        msgspec.structs.replace(window, opened=timeline.spans["start"][0] + 11_000 * MS)
        for window in drawn.operation_windows
    ]
    assert isinstance(ask(rule), list)
    monkeypatch.setattr(run, "read", lambda: replace(timeline, operation_windows=tuple(moved)))
    assert not isinstance(ask(rule), list)

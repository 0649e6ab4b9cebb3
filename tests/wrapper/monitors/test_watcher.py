"""Monitors that fail, hang or cost too much do not hurt the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from perfwrap.monitors import sidecar
from perfwrap.monitors import watcher as watcher_module
from perfwrap.monitors.sidecar import Pace
from perfwrap.monitors.watcher import Ending, Watcher

MILLISECOND = 1_000_000


class Scripted:
    """A monitor that records its calls and fails at given ones."""

    def __init__(self, fail: str = "") -> None:
        self.fail = fail
        self.calls: list[str] = []
        self.seen = threading.Event()

    def quick(self, now_ns: int) -> None:
        self._do("quick")

    def full(self, now_ns: int) -> None:
        self._do("full")
        self.seen.set()

    def close(self) -> None:
        self._do("close")

    def _do(self, what: str) -> None:
        self.calls.append(what)
        if what == self.fail:
            raise ZeroDivisionError("no such luck")


@pytest.fixture
def watch(book: Any) -> Iterator[Callable[..., tuple[Watcher, Callable[[], None]]]]:
    """Start a watcher of some monitors; the second thing returned ends it."""
    endings: list[Callable[[], None]] = []

    def start(quick: bool = True, **watches: Any) -> tuple[Watcher, Callable[[], None]]:
        ending = Ending()
        watcher = Watcher(book.writer, watches, ending, 10 * MILLISECOND, quick)

        def end() -> None:
            endings.remove(end)
            ending.announce()
            watcher.join(60)

        endings.append(end)
        watcher.start()
        return watcher, end

    yield start
    for end in list(endings):
        end()


def test_a_monitor_looks_at_once_goes_on_and_takes_a_last_look(watch: Any, book: Any, wait_for: Any) -> None:
    monitor = Scripted()
    _, end = watch(one=lambda: monitor)
    wait_for(lambda: monitor.calls.count("quick") >= 5, "five looks")
    end()
    assert monitor.calls[:2] == ["quick", "full"]
    assert monitor.calls[-3:] == ["quick", "full", "close"]
    assert monitor.calls.count("close") == 1
    (row,) = book.read().coverage
    assert (row[0], row[2], row[3]) == ("one", 0, "")


def test_a_slow_monitor_is_never_asked_quickly(watch: Any, wait_for: Any) -> None:
    monitor = Scripted()
    _, end = watch(quick=False, one=lambda: monitor)
    wait_for(monitor.seen.is_set, "a full look")
    end()
    assert set(monitor.calls) == {"full", "close"}


@pytest.mark.parametrize("moment", ["quick", "full", "close"])
def test_a_monitor_that_fails_is_coverage_and_the_others_go_on(
    watch: Any, book: Any, wait_for: Any, moment: str
) -> None:
    before, failing, after = Scripted(), Scripted(moment), Scripted()
    _, end = watch(before=lambda: before, failing=lambda: failing, after=lambda: after)
    wait_for(lambda: after.calls.count("quick") > 3, "the others to go on")
    end()
    assert failing.calls.count(moment) == 1
    for other in (before, after):
        assert other.calls[-3:] == ["quick", "full", "close"]
        assert other.calls.count("close") == 1
    content = book.read()
    (_, note) = content.notes("failing")
    assert note.startswith("stopped: ZeroDivisionError: no such luck (test_watcher.py:")
    first, last = (row for row in content.coverage if row[0] == "failing")
    assert first[1] == last[1]
    assert last[2] > 1
    assert content.notes("before") == content.notes("after") == [""]


def test_a_monitor_that_cannot_be_opened_was_never_watched(watch: Any, book: Any, wait_for: Any) -> None:
    def missing() -> None:
        raise ImportError("No module named 'it'")

    monitor = Scripted()
    _, end = watch(missing=missing, absent=lambda: None, one=lambda: monitor)
    wait_for(monitor.seen.is_set, "the other one's look")
    end()
    content = book.read()
    (note,) = content.notes("missing")
    assert note.startswith("stopped: ImportError: No module named 'it'")
    assert [row[2] for row in content.coverage if row[0] == "missing"] == [1]
    assert content.notes("absent") == []
    assert content.notes("one") == [""]


def test_a_monitor_that_hangs_is_given_up_at_the_end(book: Any) -> None:
    release, monitor = threading.Event(), Scripted()
    monitor.full = lambda now_ns: (monitor.seen.set(), release.wait())  # type: ignore[assignment]
    ending = Ending()
    watcher = Watcher(book.writer, {"stuck": lambda: monitor}, ending, MILLISECOND, True)
    watcher.start()
    monitor.seen.wait()
    ending.announce()
    watcher.join(0.01)
    assert book.read().notes("stuck") == ["", "did not respond when the command ended"]
    release.set()


def test_a_silent_journal_ends_the_looking(watch: Any, book: Any, wait_for: Any) -> None:
    monitor = Scripted()
    watch(one=lambda: monitor)
    book.writer.alive = False
    wait_for(lambda: "close" in monitor.calls, "the monitor to be closed")


def test_a_thinned_journal_makes_every_look_rarer(watch: Any, book: Any, wait_for: Any) -> None:
    book.writer.stride = 1000
    monitor, witness = Scripted(), threading.Event()
    _, end = watch(one=lambda: monitor)
    wait_for(monitor.seen.is_set, "the first look")
    assert not witness.wait(0.05)
    end()
    assert monitor.calls.count("quick") == 2, "the first and the last"


def test_a_slower_pace_is_reported_and_reversed(watch: Any, book: Any, wait_for: Any) -> None:
    monitor = Scripted()
    watcher, _ = watch(one=lambda: monitor)
    wait_for(monitor.seen.is_set, "a look")
    watcher.speed_up()
    assert book.read().thin == []
    watcher.slow_down()
    watcher.slow_down()
    assert book.read().notes("one")[-1] == (
        "sampled less often at the end, every 0.04 s: sampling used too much CPU time"
    )
    watcher.speed_up()
    watcher.speed_up()
    content = book.read()
    assert content.thin == [("one", 2), ("one", 4), ("one", 2), ("one", 1)]
    assert content.notes("one")[-1] == "sampled less often for some time: sampling used too much CPU time"
    assert len({start for _, start, _, _ in content.coverage}) == 1, "each replaces the one before"
    looks = monitor.calls.count("quick")
    wait_for(lambda: monitor.calls.count("quick") > looks + 3, "more looks")


def test_a_pause_of_the_machine_is_a_hole_in_the_coverage(
    watch: Any, book: Any, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher_module, "LONGEST_LATENESS_NS", 50 * MILLISECOND)
    monitor, pause, paused = Scripted(), threading.Event(), threading.Event()
    monitor.full = lambda now_ns: None if pause.is_set() else (paused.set(), pause.wait())  # type: ignore[assignment]
    _, end = watch(one=lambda: monitor)
    wait_for(paused.is_set, "the look that hangs")
    hanging_ns = time.monotonic_ns()
    wait_for(lambda: time.monotonic_ns() - hanging_ns > 100 * MILLISECOND, "the pause")
    pause.set()
    looks = monitor.calls.count("quick")
    wait_for(lambda: monitor.calls.count("quick") > looks + 2, "looks after the pause")
    end()
    _, hole, after = (row for row in book.read().coverage if row[0] == "one")
    assert hole[3].startswith("no samples for 0 s")
    assert hole[2] > 0
    assert after[1] >= hole[1] + hole[2] + 50 * MILLISECOND, "watched again only from then on"
    assert (after[2], after[3]) == (0, "")


class Paced:
    """Stands for a watcher that costs what a test says."""

    def __init__(self) -> None:
        self.cost_ns = 0
        self.calls: list[str] = []

    def slow_down(self) -> None:
        self.calls.append("slower")

    def speed_up(self) -> None:
        self.calls.append("faster")

    def explain_pace(self, why: str) -> None:
        self.calls.append(why)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ((0.8, 0.1), ([], [])),
        ((0.6, 0.5), ([], [])),
        ((1.6, 0.5), (["slower"], [])),
        ((0.5, 1.6), ([], ["slower"])),
        ((0.1, 0.2), ([], ["faster"])),
    ],
)
def test_all_watchers_together_stay_in_their_part_of_a_core(
    book: Any, costs: tuple[float, float], expected: tuple[list[str], list[str]]
) -> None:
    one, other = Paced(), Paced()
    pace = Pace(book.writer, [one, other])  # type: ignore[list-item]
    one.cost_ns = other.cost_ns = 10**12  # what opening cost does not count
    pace.review(0)
    for watcher, cost in zip((one, other), costs, strict=True):
        watcher.cost_ns += int(cost * sidecar.ALLOWED_SHARE * 10**10)
    pace.review(10**10)
    assert (one.calls, other.calls) == expected


def test_a_little_too_much_must_be_so_twice_in_a_row(book: Any) -> None:
    watcher = Paced()
    pace = Pace(book.writer, [watcher])  # type: ignore[list-item]
    pace.review(0)
    for at, cost in enumerate((1.5, 0.6, 1.5, 1.5, 0.6), start=1):
        watcher.cost_ns += int(cost * sidecar.ALLOWED_SHARE * 10**10)
        pace.review(at * 10**10)
        assert watcher.calls == (["slower"] if at >= 4 else []), at


def test_a_budget_that_thins_is_reported_once(book: Any) -> None:
    watcher = Paced()
    pace = Pace(book.writer, [watcher])  # type: ignore[list-item]
    book.writer.stride = 4
    pace.review(1)
    pace.review(2)
    assert watcher.calls.count("the journal's budget is limited") == 1

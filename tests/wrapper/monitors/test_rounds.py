"""Taking turns within an allowance."""

from __future__ import annotations

import time
from dataclasses import dataclass

from perfwrap.monitors.rounds import SECOND_NS, Round


@dataclass
class Member:
    name: str
    ended: bool = False


def names(turns: Round[Member], now_ns: int, cost_ns: int = 0) -> str:
    seen = []

    def look(member: Member) -> None:
        seen.append(member.name)
        begin = time.thread_time_ns()
        while time.thread_time_ns() - begin < cost_ns:
            pass

    turns.go(now_ns, look)
    return "".join(seen)


def test_everybody_is_looked_at_once_in_an_interval() -> None:
    turns: Round[Member] = Round(0.5, SECOND_NS, SECOND_NS)
    for name in "abc":
        turns.enter(Member(name))
    assert names(turns, SECOND_NS) == "cba"
    assert names(turns, SECOND_NS + 1) == ""
    turns.enter(Member("d"))
    assert names(turns, SECOND_NS + 2) == "d"
    assert names(turns, 2 * SECOND_NS) == "cba"


def test_when_the_time_is_spent_the_others_come_next() -> None:
    turns: Round[Member] = Round(0.01, 10_000_000, 0)
    for name in "dcba":
        turns.enter(Member(name))
    assert names(turns, SECOND_NS, cost_ns=11_000_000) == "a", "its cost was more than all that was saved up"
    assert names(turns, SECOND_NS + 1) == "", "a debt is paid first"
    assert names(turns, 3 * SECOND_NS, cost_ns=11_000_000) == "b"


def test_who_has_ended_is_forgotten_even_without_time() -> None:
    turns: Round[Member] = Round(0.0, 0, 0)
    members = [Member(str(number)) for number in range(100)]
    for member in members:
        turns.enter(member)
    assert names(turns, SECOND_NS) == ""
    for member in members:
        member.ended = True
    names(turns, 2 * SECOND_NS)
    assert len(turns._members) == 0


def test_a_clock_that_steps_back_earns_nothing_and_breaks_nothing() -> None:
    turns: Round[Member] = Round(0.01, 10_000_000, 0)
    turns.enter(Member("a"))
    assert names(turns, 10 * SECOND_NS) == "a"
    assert names(turns, 5 * SECOND_NS) == "a"

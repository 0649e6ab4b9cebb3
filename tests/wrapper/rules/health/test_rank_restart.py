from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.restarts import find_restarts
from perfwrap.measures.trainers import find_trainers

MS = 1_000_000


def life(run: Any, rank: int, opened_ms: int, steps: int, bye: bool, start: int, **facts: object) -> Any:
    """Write one start of a rank with steps of 20 ms."""
    journal = run.journal(
        pid=1000 * start + rank,
        opened=opened_ms * MS,
        rank=rank,
        world_size=2,
        **{"restart_count": start - 1, **facts},
    )
    for _ in range(steps):
        journal.span("data", 5 * MS, "loader/1", 32, "train.py:20:main")
        journal.span("forward", 5 * MS, "Net", 3, "train.py:21:main")
        journal.span("backward", 9 * MS, line="train.py:23:main")
        journal.span("optimizer", 1 * MS, "SGD#1", line="train.py:24:main")
    if bye:
        journal.describe("END")
    return journal


def twice(run: Any) -> None:
    """Write two ranks of which the second fails after 30 steps, then both again."""
    life(run, 0, 1_000, 30, bye=False, start=1)
    life(run, 1, 1_000, 30, bye=True, start=1)
    for rank in range(2):
        life(run, rank, 5_000, 60, bye=True, start=2)


def test_both_starts_are_reported_and_no_step_is_counted_twice(
    run: Any, diagnosis: Callable[[], Any]
) -> None:
    twice(run)
    reported = diagnosis()
    finding = next(one for one in reported.findings if one.rule == "rank_restart")
    assert "once after rank 1 ended; no step ran for 3.4 s" in finding.sentence
    assert finding.ranks == (1,)
    assert "the process of rank 1 ended first" in finding.evidence[0]
    assert reported.steps.count == 60, "of the start that made the most steps"
    assert reported.steps.samples_per_s == 2 * 32 / 0.020, "two ranks at work at once, not four"
    assert [(one.name, one.start, one.steps) for one in reported.ranks] == [
        ("rank 0", 1, 30),
        ("rank 0 (start 2)", 2, 60),
        ("rank 1", 1, 30),
        ("rank 1 (start 2)", 2, 60),
    ]
    assert sum(reported.account.values()) == sum(sum(one.account.values()) for one in reported.ranks)


def test_where_all_were_killed_no_rank_is_blamed(run: Any, diagnosis: Callable[[], Any]) -> None:
    for rank in range(2):
        life(run, rank, 1_000, 30, bye=False, start=1)
        life(run, rank, 5_000, 60, bye=True, start=2)
    finding = next(one for one in diagnosis().findings if one.rule == "rank_restart")
    assert "after a rank had ended" in finding.sentence
    assert finding.ranks == (0,), "the rank that it is about"
    assert "none ended by itself" in finding.evidence[0]


def test_ranks_that_ran_through_are_clear(run: Any, diagnosis: Callable[[], Any]) -> None:
    for rank in range(2):
        life(run, rank, 1_000, 60, bye=True, start=1)
    assert {one.rule: one.state for one in diagnosis().outcomes}["rank_restart"] == "clear"


def test_without_a_trainer_it_is_not_checked(run: Any, diagnosis: Callable[[], Any]) -> None:
    run.journal(pid=7)
    assert {one.rule: one.state for one in diagnosis().outcomes}["rank_restart"] == "not checked"


def test_a_process_of_the_same_rank_beside_the_first_is_no_new_start(run: Any) -> None:
    life(run, 0, 1_000, 30, bye=True, start=1)
    other = run.journal(pid=77, opened=1_100 * MS, rank=0)
    other.step()
    evidence = Evidence(run.read())
    assert [trainer.name for trainer in evidence.get(find_trainers)] == ["rank 0", "rank 0 (process 2)"]
    assert not evidence.get(find_restarts)


@pytest.mark.parametrize(
    ("byes", "state"),
    [
        pytest.param((True, True), "clear", id="all ended: a spawn for each fold"),
        pytest.param((True, False), "found", id="one ended, the other was killed"),
        pytest.param((False, False), "clear", id="all were killed: jobs of one cluster"),
    ],
)
def test_without_a_word_of_the_launcher_only_a_failure_is_a_restart(
    run: Any, diagnosis: Callable[[], Any], byes: tuple[bool, bool], state: str
) -> None:
    for rank, bye in enumerate(byes):
        life(run, rank, 1_000, 30, bye=bye, start=1, restart_count=None)
        life(run, rank, 5_000, 60, bye=True, start=2, restart_count=None)
    assert len(Evidence(run.read()).get(find_restarts)) == 1, "there are two starts in any case"
    assert {one.rule: one.state for one in diagnosis().outcomes}["rank_restart"] == state

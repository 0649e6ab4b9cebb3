from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.account.account import find_account
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.ranks.rank_skew import find_skew
from perfwrap.measures.ranks.sync_points import find_sync_points
from perfwrap.measures.trainers import find_trainers

MS = 1_000_000


def write(run: Any, rank: int, own_ms: list[float], ends_ms: list[float], kind: str = "all_reduce") -> Any:
    """Write steps whose collective or backward pass begins after some own work and ends everywhere at once."""
    journal = run.journal(pid=100 + rank, opened=1_000 * MS, rank=rank, world_size=2)
    ddp = {"kind": "DistributedDataParallel", "world_size": 2}
    for key, value in ddp.items() if kind == "backward" else ():
        journal.fact(f"parallel/1/{key}", value)
    began = journal.now
    for own, end in zip(own_ms, ends_ms, strict=True):
        until = began + round(end * MS)
        journal.span("forward", round(own * MS), "Net", 3, "train.py:21:main")
        if kind == "backward":
            journal.span("backward", until - journal.now, line="train.py:23:main")
        else:
            journal.span("backward", 1 * MS, line="train.py:23:main")
            journal.span("collective", until - journal.now, kind, 1024, "train.py:24:main")
        journal.span("optimizer", 1 * MS, "SGD#1", line="train.py:25:main")
    return journal


ENDS = [20.0 * step + 19 for step in range(60)]


def test_who_comes_first_to_a_collective_waits_until_the_last_one_comes(run: Any) -> None:
    write(run, 0, [3.0] * 60, ENDS)
    write(run, 1, [3.0 + 5 * (step % 2) for step in range(60)], ENDS)
    evidence = Evidence(run.read())
    waits = evidence.get(find_sync_points).waits_of(0)
    assert set(waits["last"]) == {1}
    assert set((waits["end"] - waits["start"]).to_list()) == {5 * MS}
    assert evidence.get(find_sync_points).measured
    assert evidence.get(find_skew) is not None
    late = evidence.get(find_skew).of(evidence.get(find_trainers)[1])
    assert late is not None
    assert late.caused_ns == pytest.approx(2.5 * MS, rel=0.05)
    assert evidence.get(find_skew).always_the_same
    account = evidence.get(find_account, evidence.get(find_trainers)[0])
    assert account.waiting_ns["python"] == int((waits["end"] - waits["start"]).sum())
    assert sum(account.ns.values()) == account.total_ns, "waiting is a part of the account, not more of it"


def test_a_call_that_one_rank_left_before_the_last_one_came_is_no_meeting(run: Any) -> None:
    write(run, 0, [3.0] * 60, [end - 10 for end in ENDS], "broadcast")
    late = write(run, 1, [15.0] * 60, ENDS, "broadcast")
    assert late.now
    evidence = Evidence(run.read())
    assert evidence.get(find_sync_points).table.is_empty()
    assert evidence.get(find_sync_points).unmatched
    assert evidence.get(find_skew) is None


@pytest.mark.parametrize("kind", ["all_reduce async", "send", "irecv", "all_reduce of group of others"])
def test_calls_that_only_enqueue_or_are_of_two_or_of_others_are_left_out(run: Any, kind: str) -> None:
    write(run, 0, [3.0] * 60, ENDS, kind)
    write(run, 1, [8.0] * 60, ENDS, kind)
    assert Evidence(run.read()).get(find_sync_points).table.is_empty()


def test_of_two_groups_each_is_matched_by_itself(run: Any) -> None:
    for rank in range(4):
        write(run, rank, [3.0 + 4 * (rank == 1)] * 60, ENDS, f"all_reduce of group {rank // 2}")
    evidence = Evidence(run.read())
    assert [
        evidence.get(find_sync_points).waits_of(rank)["last"].unique().to_list() for rank in range(4)
    ] == [
        [1],
        [],
        [],
        [],
    ]


def test_of_a_backward_pass_the_wait_is_what_it_took_longer_than_the_last_ones(run: Any) -> None:
    write(run, 0, [3.0] * 60, ENDS, "backward")
    write(run, 1, [9.0] * 60, ENDS, "backward")
    evidence = Evidence(run.read())
    waits = evidence.get(find_sync_points).waits_of(0)
    assert set((waits["end"] - waits["start"]).to_list()) == {6 * MS}
    assert not evidence.get(find_sync_points).measured
    segments = evidence.get(find_account, evidence.get(find_trainers)[0]).segments
    waiting = segments.filter(segments["waits_for"].is_not_null())
    assert set(waiting["part"]) == {"backward"}


def test_ranks_of_several_machines_are_not_held_against_each_other(run: Any) -> None:
    write(run, 0, [3.0] * 60, ENDS)
    journal = run.journal(pid=300, host="there", opened=1_000 * MS, rank=1, world_size=2)
    for _ in range(60):
        journal.span("collective", 8 * MS, "all_reduce", 1024, "train.py:24:main")
        journal.step()
    assert Evidence(run.read()).get(find_sync_points).table.is_empty()

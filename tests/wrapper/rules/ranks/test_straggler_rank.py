from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.measures.trainers import find_trainers
from perfwrap.rules.model import Clear, NotChecked
from perfwrap.rules.ranks import straggler_rank as rule

MS = 1_000_000


def train(run: Any, rank: int, steps: int = 40, **ms: Callable[[int], float]) -> Any:
    """Write one rank's steps, each 20 ms long: what is left of them is waiting in the backward pass."""
    journal = run.journal(pid=100 + rank, opened=1_000 * MS, rank=rank, world_size=2)
    for step in range(steps):
        data, forward, python = (ms.get(name, lambda _: 1.0)(step) for name in ("data", "forward", "python"))
        journal.span("data", round(data * MS), "loader/1", 32, "train.py:20:main")
        journal.span("forward", round(forward * MS), "Net", 3, "train.py:21:main")
        journal.python(round(python * MS))
        journal.span("backward", round((19 - data - forward - python) * MS), line="train.py:23:main")
        journal.span("optimizer", 1 * MS, "SGD#1", line="train.py:24:main")
    return journal


def found(diagnosis: Callable[[], Any]) -> Any:
    return next((one for one in diagnosis().findings if one.rule == "straggler_rank"), None)


@pytest.mark.parametrize(
    ("part", "words", "line"),
    [
        ("data", "waiting for batches at train.py:20", 20),
        ("forward", "the forward pass at train.py:21", 21),
        ("python", "its own Python at train.py:21", 21),
    ],
)
def test_the_rank_that_all_wait_for_is_found_with_the_part_that_makes_it_late(
    run: Any, diagnosis: Callable[[], Any], part: str, words: str, line: int
) -> None:
    train(run, 0)
    train(run, 1, **{part: lambda _: 7.0})
    finding = found(diagnosis)
    assert finding.share == pytest.approx(6 / 20, abs=0.01)
    assert finding.ranks == (1,)
    assert f"All ranks wait for rank 1 30 % of the time, because of {words}" in finding.sentence
    assert finding.location.line == line


def test_its_share_is_the_whole_jobs_however_many_ranks_wait(run: Any, diagnosis: Callable[[], Any]) -> None:
    for rank in range(4):
        train(run, rank, data=lambda _, late=rank == 2: 7.0 if late else 1.0)
    finding = found(diagnosis)
    assert finding.share == pytest.approx(6 / 20, abs=0.01)
    assert finding.ranks == (2,)


def test_a_rank_that_is_late_now_and_then_is_found_by_its_mean(
    run: Any, diagnosis: Callable[[], Any]
) -> None:
    train(run, 0)
    train(run, 1, data=lambda step: 9.0 if step % 3 == 0 else 0.9)
    assert found(diagnosis).share == pytest.approx(0.13, abs=0.03)


def test_without_one_main_cause_none_is_named(run: Any, diagnosis: Callable[[], Any]) -> None:
    train(run, 0)
    train(run, 1, data=lambda _: 4.0, forward=lambda _: 4.0)
    finding = found(diagnosis)
    assert "because" not in finding.sentence
    assert finding.location is None


def state(diagnosis: Callable[[], Any]) -> str:
    return {one.rule: one.state for one in diagnosis().outcomes}["straggler_rank"]


def test_ranks_that_are_late_in_turn_are_clear(run: Any, diagnosis: Callable[[], Any]) -> None:
    for rank in range(2):
        train(run, rank, data=lambda step, rank=rank: 7.0 if step % 2 == rank else 1.0)
    assert state(diagnosis) == "clear"


def test_what_chance_makes_of_uneven_steps_is_clear(run: Any, diagnosis: Callable[[], Any]) -> None:
    for rank in range(2):
        train(
            run, rank, forward=lambda step, rank=rank: 1 + 9 * ((7 * step + 3 * rank) % 10 == 0) + rank * 0.8
        )
    assert state(diagnosis) == "clear"


def test_waiting_in_the_backward_pass_and_in_collectives_is_no_work_of_ones_own(
    run: Any, diagnosis: Callable[[], Any]
) -> None:
    train(run, 0, steps=40)
    journal = run.journal(pid=101, opened=1_000 * MS, rank=1, world_size=2)
    for _ in range(40):
        journal.span("data", 1 * MS, "loader/1", 32, "train.py:20:main")
        journal.span("forward", 1 * MS, "Net", 3, "train.py:21:main")
        journal.python(1 * MS)
        journal.span("backward", 7 * MS, line="train.py:23:main")
        journal.span("collective", 9 * MS, "all_reduce", 1024, "train.py:25:main")
        journal.span("optimizer", 1 * MS, "SGD#1", line="train.py:24:main")
    assert state(diagnosis) == "clear"


def test_a_forward_pass_that_waits_for_buffers_is_not_compared(
    run: Any, diagnosis: Callable[[], Any]
) -> None:
    train(run, 0)
    journal = train(run, 1, forward=lambda _: 7.0)
    for key, value in (("kind", "DistributedDataParallel"), ("broadcast_buffers", True), ("buffers", 6)):
        journal.fact(f"parallel/1/{key}", value)
    assert state(diagnosis) == "clear"


def test_one_process_is_clear_and_too_few_common_steps_are_not_checked(run: Any) -> None:
    from perfwrap.measures.evidence import Evidence

    train(run, 0)
    alone = Evidence(run.read())
    assert isinstance(rule.check(alone, alone.get(find_trainers)[0], rule.Limits()), Clear)
    train(run, 1, steps=5)
    both = Evidence(run.read())
    assert isinstance(rule.check(both, both.get(find_trainers)[0], rule.Limits()), NotChecked)


def meet(
    run: Any, rank: int, own: Callable[[int], float], steps: int = 40, cores: str = "0-3", **work: str
) -> Any:
    """Write steps of 20 ms: some of one's own work, then an all-reduce that ends on all ranks at once."""
    journal = run.journal(pid=100 + rank, opened=1_000 * MS, rank=rank, world_size=4)
    journal.fact("cores", cores)
    for step in range(steps):
        journal.span("forward", 2 * MS, "Net", 3, "train.py:21:main")
        journal.span("backward", 1 * MS, line="train.py:23:main")
        took = round(own(step) * MS)
        if "operation" in work:
            journal.span(work["operation"], took, line="train.py:24:main")
        else:
            journal.python(took)
        journal.span("collective", 16 * MS - took, "all_reduce", 1024, "train.py:26:main")
        journal.span("optimizer", 1 * MS, "SGD#1", line="train.py:27:main")
    return journal


def watch(run: Any, rank: int, running: float, cores: float) -> None:
    """Have monitors see how often a rank wanted a core, and how much of one it got."""
    journal = run.journal(pid=900 + rank, opened=1_000 * MS, role="monitor")
    for look in range(8):
        journal.sample(f"process/{100 + rank}", "running_share", running, (1_050 + 100 * look) * MS)
        journal.sample(f"process/{100 + rank}", "cpu_cores", cores, (1_050 + 100 * look) * MS)


def test_the_time_in_which_others_wait_is_claimed_once(run: Any, diagnosis: Callable[[], Any]) -> None:
    for rank in range(4):
        meet(run, rank, lambda _, late=rank == 2: 11.0 if late else 3.0)
    reported = diagnosis()
    finding = next(one for one in reported.findings if one.rule == "straggler_rank")
    assert finding.share == pytest.approx(8 / 20, abs=0.02)
    assert finding.ranks == (2,)
    assert finding.confidence == "measured"
    assert (
        "It was last at 100 % of 38 synchronization points" in finding.evidence[2]
        or "100 %" in finding.evidence[2]
    )
    assert "always the same rank" in finding.evidence[2]
    for figures, claimed in zip(reported.ranks, reported.claimed.values(), strict=True):
        own = claimed.filter(claimed["rule"] == "straggler_rank")
        waited = int((own["end"] - own["start"]).sum())
        assert waited == sum(figures.waiting.values())
        assert (waited == 0) == (figures.rank == 2)
    assert reported.verdict.share == pytest.approx(finding.share), "what rank 2 itself loses is no more time"


def test_a_rank_that_is_late_rarely_but_always_the_same_is_found(
    run: Any, diagnosis: Callable[[], Any]
) -> None:
    for rank in range(4):
        meet(
            run,
            rank,
            lambda step, late=rank == 1: 15.0 if late and step % 5 == 0 else 3.0,
            operation="save",
            steps=100,
        )
    finding = found(diagnosis)
    assert finding.ranks == (1,)
    assert "because of saving or loading at train.py:24" in finding.sentence


def test_a_machine_that_freezes_for_a_moment_does_not_hide_the_late_rank(
    run: Any, diagnosis: Callable[[], Any]
) -> None:
    for rank in range(2):
        journal = run.journal(pid=100 + rank, opened=1_000 * MS, rank=rank, world_size=2)
        for step in range(60):
            journal.span("forward", 2 * MS, "Net", 3, "train.py:21:main")
            journal.span("backward", 1 * MS, line="train.py:23:main")
            still = 4_000 if rank == step % 2 and step in (20, 41) else 0
            journal.python((3 + 6 * rank + still) * MS)
            journal.span("collective", 1 * MS, "all_reduce", 1024, "train.py:26:main")
            journal.span("optimizer", 1 * MS, "SGD#1", line="train.py:27:main")
    assert found(diagnosis).ranks == (1,)


def test_a_rank_that_shares_its_only_core_is_reported(run: Any, diagnosis: Callable[[], Any]) -> None:
    for rank in range(3):
        meet(run, rank, lambda _, late=rank == 1: 10.0 if late else 3.0, cores="3" if rank == 1 else "0-3")
        watch(run, rank, *((0.9, 0.5) if rank == 1 else (0.4, 0.4)))
    finding = found(diagnosis)
    assert "because it may use only core 3, which other processes used 40 % of the time" in finding.sentence
    assert finding.verdict == "throttled"
    assert "taskset" in finding.advice


def test_a_core_of_its_own_is_no_cause_however_few_there_are(run: Any, diagnosis: Callable[[], Any]) -> None:
    for rank in range(3):
        meet(run, rank, lambda _, late=rank == 1: 10.0 if late else 3.0, cores="3" if rank == 1 else "0-2")
        watch(run, rank, *((0.9, 0.9) if rank == 1 else (0.4, 0.4)))
    assert "because of its own Python" in found(diagnosis).sentence


def test_collections_are_their_own_cause_also_on_a_shared_core(
    run: Any, diagnosis: Callable[[], Any]
) -> None:
    for rank in range(3):
        meet(run, rank, lambda _, late=rank == 1: 10.0 if late else 0.1, cores="3", operation="gc")
        watch(run, rank, *((0.9, 0.5) if rank == 1 else (0.4, 0.4)))
    assert "because of garbage collection" in found(diagnosis).sentence


def test_who_works_most_waits_most_for_cores_that_all_share_which_is_no_cause(
    run: Any, diagnosis: Callable[[], Any]
) -> None:
    for rank in range(3):
        meet(run, rank, lambda _, late=rank == 1: 10.0 if late else 3.0, cores="0-1")
        watch(run, rank, *((0.9, 0.5) if rank == 1 else (0.4, 0.4)))
    assert "because of its own Python" in found(diagnosis).sentence

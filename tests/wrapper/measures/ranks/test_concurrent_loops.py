"""Which trainers were at work at the same time."""

from __future__ import annotations

from perfwrap.measures.ranks.concurrent_loops import Loops, concurrent_groups, ranks_together
from perfwrap.measures.trainers import Trainer


def made(*loops: tuple[int, int], rank: int | None = None) -> dict[Trainer, tuple[int, int]]:
    """Return trainers, numbered, with these loops."""
    return {
        Trainer(number, number, str(number), rank, number, "h"): loop for number, loop in enumerate(loops)
    }


def groups(loops: Loops, together: tuple[Trainer, ...] = ()) -> list[list[str]]:
    return [[trainer.name for trainer in group] for group in concurrent_groups(loops, together)]


def test_loops_that_share_their_time_are_one_group() -> None:
    assert groups(made((0, 100), (30, 130), (20, 60))) == [["0", "1", "2"]]


def test_loops_that_follow_on_each_other_are_groups_by_time() -> None:
    assert groups(made((200, 300), (0, 100), (310, 400))) == [["1"], ["0"], ["2"]]


def test_a_loop_that_begins_while_another_ends_follows_it() -> None:
    assert groups(made((0, 100), (60, 160))) == [["0"], ["1"]]


def test_short_loops_beside_a_long_one_count_only_where_they_are_beside_each_other() -> None:
    assert groups(made((0, 1000), (10, 90), (100, 200))) == [["0", "2"], ["1"]]


def test_ranks_that_were_started_together_are_one_turn_whatever_their_clocks() -> None:
    loops = made((0, 100), rank=0) | {Trainer(7, 7, "7", 1, 7, "h"): (5000, 5100)}
    assert groups(loops, ranks_together(loops, next(iter(loops)))) == [["0", "7"]]


def test_of_jobs_that_follow_on_each_other_the_ranks_of_one_are_together() -> None:
    zeros = list(made((200, 300), (0, 90), rank=0).items())
    first, second = (Trainer(number, number, str(number), 1, number, "h") for number in (7, 8))
    loops = dict([zeros[0], zeros[1], (first, (0, 90)), (second, (200, 300))])
    together = ranks_together(loops, zeros[0][0])
    assert [trainer.name for trainer in together] == ["0", "8"]
    assert groups(loops, together) == [["1", "7"], ["0", "8"]]


def test_without_ranks_nothing_is_together_by_its_launcher() -> None:
    loops = made((0, 100))
    assert ranks_together(loops, next(iter(loops))) == ()
    assert ranks_together({}, None) == ()

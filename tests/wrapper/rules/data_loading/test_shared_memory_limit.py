from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfwrap.rules.data_loading import shared_memory_limit as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, free: int | None, workers: int = 2) -> None:
    loop.loader(num_workers=workers, prefetch_factor=4, workers="101 102")
    for _ in range(40):
        loop.batch(1)
        loop.compute()
    for number in range(workers):
        loop.worker(number, 3)
    loop.cores(8)
    if free is not None:
        loop.monitor().fact("shm_free_bytes", free)


def test_batches_that_do_not_fit_are_found_however_little_they_cost(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, free=9 << 20)
    finding = find(rule)
    # 2 workers x 4 batches x 1 MiB.
    assert "8 MiB of 9 MiB" in finding.title
    assert finding.health
    assert finding.share == 0
    assert "--shm-size=1g" in finding.advice


def test_enough_room_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, free=64 << 20)
    assert isinstance(ask(rule), Clear)


def test_an_unknown_size_is_not_guessed(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, free=None)
    assert isinstance(ask(rule), NotChecked)


def test_batches_whose_size_is_not_known_are_not_guessed(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    loop.loader(num_workers=2)
    for _ in range(40):
        loop.batch(1)
        loop.compute()
    loop.cores(8)
    loop.monitor().fact("shm_free_bytes", 64 << 20)
    assert isinstance(ask(rule), NotChecked)

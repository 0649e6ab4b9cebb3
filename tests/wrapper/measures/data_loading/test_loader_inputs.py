"""The inputs of the simulation, from recordings of a loop."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.data_loading.loader_inputs import (
    UNKNOWN_PAIR_SPEED,
    find_batch_times,
    find_shared_cores,
)
from perfwrap.measures.data_loading.loaders import find_loaders
from perfwrap.measures.data_loading.worker_need import measured_step
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.main_trainer import find_main_trainer

from tests.wrapper.rules.conftest import Loop

MS = 1_000_000


@pytest.fixture
def loop(run: Any) -> Loop:
    """A loop without workers: batches of 10 and 20 ms in turn, steps of 10 ms."""
    loop = Loop(run, threads=1)
    loop.loader()
    for number in range(60):
        loop.batch(10 + 10 * (number % 2))
        loop.compute()
    return loop


def ask(run: Any) -> tuple[Any, Any, Any]:
    evidence = Evidence(run.read())
    trainer = evidence.get(find_main_trainer)
    assert trainer is not None
    return evidence, trainer, evidence.get(find_loaders, trainer)[0]


def test_times_are_those_of_single_batches_in_their_order(loop: Loop, run: Any) -> None:
    evidence, trainer, loader = ask(run)
    times = evidence.get(find_batch_times, trainer, loader)
    assert {round(each / MS) for each in times.making} == {10, 20}
    assert all(
        round(abs(one - next_) / MS) == 10 for one, next_ in zip(times.making, times.making[1:], strict=False)
    )
    assert {round(each / MS) for each in times.using} == {10}


def test_what_other_programs_use_and_the_speed_of_pairs_are_measured(loop: Loop, run: Any) -> None:
    loop.cores(4, busy=3)
    loop.sample("process/100", "cpu_cores", 1.0)
    loop.monitor().fact("cores_online", 4)
    loop.monitor().fact("cpu_pair_speed", "0.71 0.92")
    cores = find_shared_cores(*ask(run))
    assert (cores.cores, cores.ranks, cores.pair_speed) == (4, 1, (0.71, 0.92))
    assert cores.taken == pytest.approx(2.0)
    assert cores.taken_away().count == pytest.approx(2.0)
    assert cores.fair(1.0).others == pytest.approx(2.0)


def test_others_that_were_held_back_want_more_than_they_used(loop: Loop, run: Any) -> None:
    loop.cores(2, busy=2)
    loop.sample("process/100", "cpu_cores", 0.5)
    loop.monitor().fact("cores_online", 2)
    cores = find_shared_cores(*ask(run))
    # One task got half a core of two: three others with the same share used the rest.
    assert cores.fair(1.0).others == pytest.approx(3.0)
    assert cores.fair(1.0).speed(1.0) == pytest.approx(0.5)


def test_an_unmeasured_pair_may_be_threads_of_one_core(loop: Loop, run: Any) -> None:
    loop.cores(2)
    assert find_shared_cores(*ask(run)).pair_speed == UNKNOWN_PAIR_SPEED


def test_separate_cores_of_a_real_machine_hardly_slow_each_other_down(loop: Loop, run: Any) -> None:
    loop.cores(2)
    loop.monitor().fact("cpu_threads_per_core", 1)
    loop.monitor().fact("virtualisation", "none seen")
    assert min(find_shared_cores(*ask(run)).pair_speed) > 0.8


def test_time_without_a_core_is_not_work(loop: Loop, run: Any) -> None:
    loop.cores(2)
    loop.sample("process/100", "running_share", 1.0)
    loop.sample("process/100", "disk_wait_share", 0.0)
    loop.sample("process/100", "cpu_cores", 0.5)
    step = measured_step(*ask(run))
    assert step is not None
    assert sum(step.load.using) / len(step.load.using) == pytest.approx(5 * MS, rel=0.05)
    assert sum(step.load.making) / len(step.load.making) == pytest.approx(7.5 * MS, rel=0.05)
    assert step.load.making_cpu == pytest.approx(1.0)


def test_what_a_rank_waits_for_may_be_other_ranks_instead_of_its_batches(run: Any) -> None:
    loop = Loop(run, threads=1, rank=0, world_size=2)
    other = run.journal(pid=101, opened=1_000 * MS, rank=1, world_size=2)
    loop.loader()
    for _ in range(60):
        loop.batch(10)
        loop.compute()
        for operation in ("data", "forward", "backward", "optimizer"):
            other.span(operation, 5 * MS)
    loop.cores(2)
    loop.sample("process/100", "running_share", 0.7)
    loop.sample("process/100", "disk_wait_share", 0.05)
    loop.sample("process/100", "cpu_cores", 0.7)
    evidence, trainer, loader = ask(run)
    step = measured_step(evidence, trainer, loader)
    assert step is not None
    # Of a whole step 5 % waits for a disk, which is 10 % of making a batch.
    assert step.load.making_cpu == pytest.approx(0.9, abs=0.01)
    assert step.load.width < 0.7

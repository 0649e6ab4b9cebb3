"""The simulated loop follows from its inputs; scripts/accuracy/loader_simulation.py compares it with real loops."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from perfwrap.measures.data_loading.loader_simulation import Cores, Load, Simulated, simulate

MS = 1_000_000
LONG = 1_000_000
"""Batches of an epoch whose start does not count."""


def load(making: Any = 10, using: Any = 5, **changes: Any) -> Load:
    times = [
        tuple(float(value * MS) for value in (each if isinstance(each, list) else [each]))
        for each in (making, using)
    ]
    plain = Load(times[0], times[1], 1.0, 1.0, 0.0, 0.0, 0.0, LONG)
    return replace(plain, **changes)


def batch_ms(found: Simulated) -> float:
    return found.batch_ns / MS


@pytest.mark.parametrize(
    ("workers", "cores", "expected"),
    [(0, 8, 15), (1, 8, 10), (2, 8, 5), (4, 8, 5), (2, 2, 7.5), (4, 2, 7.5), (1, 1, 15), (3, 1, 15)],
)
def test_a_step_is_as_fast_as_the_slowest_of_training_workers_and_cores(
    workers: int, cores: float, expected: float
) -> None:
    assert batch_ms(simulate(load(), Cores(cores), workers)) == pytest.approx(expected, rel=0.03)


def test_waits_need_no_core() -> None:
    waiting = load(making=40, making_cpu=0.0)
    assert batch_ms(simulate(waiting, Cores(1.0), 4)) == pytest.approx(10, rel=0.03)
    assert batch_ms(simulate(waiting, Cores(1.0), 16)) == pytest.approx(5, rel=0.03)


def test_a_server_that_serves_one_at_a_time_bounds_all_workers() -> None:
    alone = load(making=40, making_cpu=0.0, parallel_waits=1)
    assert batch_ms(simulate(alone, Cores(8.0), 16)) == pytest.approx(40, rel=0.03)


def test_other_programs_get_their_share_of_the_cores() -> None:
    # Training and worker are two tasks, the other program is the third: each gets a third of the one core.
    shared = simulate(load(making=10, using=10), Cores(1.0, others=1.0), 1)
    assert batch_ms(shared) == pytest.approx(30, rel=0.03)
    assert batch_ms(simulate(load(), Cores(8.0, others=1.0), 1)) == pytest.approx(10, rel=0.03)


def test_threads_of_one_core_slow_each_other_down_only_while_both_are_busy() -> None:
    halves = Cores(2.0, pair_speed=0.6)
    assert batch_ms(simulate(load(), halves, 0)) == pytest.approx(15, rel=0.03)
    assert batch_ms(simulate(load(), halves, 2)) == pytest.approx(7.5 / 0.6, rel=0.03)
    assert batch_ms(simulate(load(), Cores(8.0, pair_speed=0.6), 2)) == pytest.approx(5, rel=0.03)


def test_a_longer_queue_absorbs_bursts_and_a_short_one_does_not() -> None:
    bursts = load(making=[40, 4, 4, 4, 4, 4, 4, 4], using=10)
    short, long = (simulate(bursts, Cores(None), 1, prefetch) for prefetch in (1, 8))
    assert batch_ms(long) == pytest.approx(10, rel=0.05)
    assert batch_ms(short) > 1.2 * batch_ms(long)
    assert long.wait_ns < short.wait_ns


def test_batches_are_delivered_in_order_so_that_a_slow_worker_delays_all() -> None:
    uneven = load(making=[30, 2], using=1)
    assert batch_ms(simulate(uneven, Cores(None), 2)) == pytest.approx(15, rel=0.05)


def test_sending_and_receiving_cost_their_processes_time() -> None:
    cost = load(making=2, using=5, receive_ns=1.0 * MS, send_ns=1.0 * MS)
    assert batch_ms(simulate(cost, Cores(None), 1)) == pytest.approx(6, rel=0.03)
    slow = replace(cost, making=(10.0 * MS,))
    assert batch_ms(simulate(slow, Cores(None), 1)) == pytest.approx(11, rel=0.03)


def test_a_busy_worker_answers_late_and_an_idle_one_at_once() -> None:
    busy = load(making=14, using=10, reply_ns=5.0 * MS)
    assert batch_ms(simulate(replace(busy, reply_ns=0.0), Cores(None), 1)) == pytest.approx(14, rel=0.01)
    # Two of these delays are in turn with the step: one to send the batch, one to map it.
    assert 14.2 < batch_ms(simulate(busy, Cores(None), 1)) < 15.1
    assert batch_ms(simulate(replace(busy, making=(1.0 * MS,)), Cores(None), 1)) == pytest.approx(
        10, rel=0.02
    )


def test_the_first_batch_of_each_epoch_is_not_prefetched() -> None:
    short = simulate(load(making=20, using=20, epoch=10), Cores(None), 1)
    assert batch_ms(short) == pytest.approx(20 + 20 / 10, rel=0.03)
    assert batch_ms(simulate(load(making=20, using=20, epoch=10_000), Cores(None), 1)) == pytest.approx(
        20, rel=0.02
    )


def test_the_running_tasks_are_those_that_need_a_core() -> None:
    found = simulate(load(making=40, using=10, making_cpu=0.25, width=2.0), Cores(8.0), 4)
    assert found.running == pytest.approx(2 + 1, rel=0.1)
    assert found.workers_running == pytest.approx(1, rel=0.1)
    assert found.workers_idle < 0.1


def test_the_same_inputs_give_the_same_result() -> None:
    uneven = load(making=[7, 3, 19, 5], using=[4, 6, 2])
    assert simulate(uneven, Cores(3.0, 0.7, 0.5), 3) == simulate(uneven, Cores(3.0, 0.7, 0.5), 3)


def test_without_times_nothing_is_simulated() -> None:
    with pytest.raises(ValueError, match="no times"):
        simulate(replace(load(), making=()), Cores(2.0), 1)

"""Predictions of steps with other workers, and that following them leads to no new complaint."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace
from perfwrap.measures.data_loading.loader_inputs import SharedCores
from perfwrap.measures.data_loading.loader_simulation import Load, Simulated, simulate
from perfwrap.measures.data_loading.worker_need import (
    DEFAULT_PREFETCH,
    MIN_GAIN,
    Step,
    best_queue,
    best_workers,
    saved,
    saved_by_workers,
)
from perfwrap.rules.data_loading import needless_workers, shallow_prefetch, too_few_workers
from perfwrap.rules.host import thread_oversubscription

MS = 1_000_000


def step(
    making: Any = 15.0,
    using: Any = 5.0,
    cores: float | None = 2,
    workers: int = 0,
    threads: int = 1,
    making_cpu: float = 1.0,
    width: float | None = None,
    ranks: int = 1,
    taken: float = 0.0,
    pair_speed: tuple[float, float] = (1.0, 1.0),
    epoch: int = 1_000_000,
) -> Step:
    """Return a step with one batch; times in milliseconds on a core of its own."""
    made, used = (
        tuple(float(value * MS) for value in (each if isinstance(each, list) else [each] * 40))
        for each in (making, using)
    )
    load = Load(made, used, making_cpu, width or float(threads), 0.4 * MS, 0.5 * MS, 0.0, epoch)
    shared = SharedCores(None if cores is None else cores / ranks, ranks, taken, pair_speed)
    mean_made, mean_used = sum(made) / len(made), sum(used) / len(used)
    now = mean_made + mean_used if not workers else max(mean_made / workers, mean_used)
    return Step(
        now_ns=now,
        rest_ns=mean_used,
        fetch_ns=mean_made,
        workers=workers,
        cores=cores,
        threads=threads,
        on_gpu=False,
        crowded=False,
        prefetch=DEFAULT_PREFETCH,
        batches=1.0,
        batch_ns=now,
        load=load,
        today=load,
        shared=shared,
    )


def test_the_range_contains_the_arithmetic_of_two_cores() -> None:
    one = step()
    assert best_workers(one) == 2
    best, worst = saved_by_workers(one)
    assert best <= 10.7 / 20 <= worst <= 0.8


def test_two_ranks_that_fill_the_cores_get_no_workers() -> None:
    assert best_workers(step(ranks=2)) == 0
    assert best_workers(step(ranks=2, cores=8)) > 0


def test_other_programs_that_fill_the_cores_leave_no_certain_gain() -> None:
    assert best_workers(step(taken=1.0)) == 0
    assert best_workers(step(taken=1.0, cores=8)) > 0
    assert saved(step(taken=0.5), 1)[1] > saved(step(), 1)[1]


def test_unknown_cores_widen_the_range() -> None:
    measured, unknown = saved(step(), 2), saved(step(pair_speed=(0.6, 1.0)), 2)
    assert unknown[0] == pytest.approx(measured[0])
    assert unknown[1] > measured[1] + 0.05


def test_times_that_differ_between_the_halves_of_the_loop_widen_the_range() -> None:
    even, drifting = step(making=[15.0] * 80, cores=8), step(making=[5.0] * 40 + [25.0] * 40, cores=8)
    width = [worst - best for best, worst in (saved(even, 1), saved(drifting, 1))]
    assert width[1] > width[0]


def test_fewer_threads_may_cost_as_much_as_they_worked_or_nothing() -> None:
    busy = step(making=35, using=10, threads=2)
    assert busy.threads_with(2) == 1
    best, worst = saved(busy, 2)
    # 45 ms of work if the second thread only waited for the first, else 55 ms.
    assert best <= 22.5 / 45 + 0.03
    assert worst >= 27.5 / 45


def test_workers_that_wait_leave_the_training_its_threads() -> None:
    assert step(making_cpu=0.05, threads=2).threads_with(8) == 1
    assert step(making_cpu=0.05, threads=2, cores=4).threads_with(8) == 2


def test_bursts_get_a_longer_queue_with_the_workers() -> None:
    bursts = step(making=[4.0, 4, 4, 4, 4, 4, 4, 60] * 10, using=12.0, cores=8)
    assert bursts.queue_with(1) > DEFAULT_PREFETCH
    assert step(cores=8).queue_with(2) == DEFAULT_PREFETCH


def test_batches_cheaper_to_make_than_to_send_get_no_workers() -> None:
    assert best_workers(step(making=0.3, using=1.0, cores=16)) == 0


def test_today_is_predicted_as_today() -> None:
    for workers in (0, 1, 3):
        same = step(workers=workers, cores=16)
        assert same.with_workers(workers) == pytest.approx(same.now_ns, rel=0.1)


def test_cheaper_batches_are_never_slower() -> None:
    slow = step(workers=2, making=40, cores=4)
    times = [slow.cheaper(share).with_workers(2) for share in (0.0, 0.3, 0.6, 0.9)]
    assert times == sorted(times, reverse=True)


def test_a_longer_queue_is_chosen_only_if_it_pays() -> None:
    assert best_queue({2: 10.0, 4: 9.95, 8: 9.95, 16: 9.95, 32: 9.95, 64: 9.95}.__getitem__, 2) == 2
    assert best_queue({2: 10.0, 4: 9.0, 8: 8.95, 16: 8.95, 32: 8.95, 64: 8.95}.__getitem__, 2) == 4


GRID = [
    {"making": making, "using": using, "cores": cores, "threads": threads, "making_cpu": cpu, "ranks": ranks}
    for making, using, cores, threads, cpu, ranks in product(
        (2.0, 15.0, 60.0, [4.0, 4, 4, 4, 4, 4, 4, 60] * 10),
        (2.0, 12.0),
        (1, 2, 4, 16),
        (1, 2),
        (0.05, 0.5, 1.0),
        (1, 2),
    )
    if threads <= cores
]


@pytest.mark.parametrize("inputs", GRID, ids=str)
def test_the_next_report_does_not_accuse_what_was_advised(inputs: dict[str, Any]) -> None:
    before = step(**inputs)
    workers = best_workers(before)
    if not workers:
        return
    best, worst = saved(before, workers)
    assert best <= worst <= 1.0 - MIN_GAIN
    queue, threads = before.queue_with(workers), before.threads_with(workers)
    load = replace(before.load, width=min(before.load.width, float(threads)))
    for cores in (before.shared.fair(1.0), before.shared.taken_away()):
        after = simulate(load, cores, workers, queue)
        _has_no_needless_workers(after.received_ns, before.fetch_ns)
        _has_few_threads(before, after.running, after.workers_running, threads)
        deeper = min(
            simulate(load, cores, workers, size).batch_ns for size in (queue, 4, 16, 64) if size >= queue
        )
        _has_a_long_queue(after.batch_ns, after.wait_ns, after.workers_idle, deeper)
        _has_enough_workers(before, after, workers, queue)


def _has_no_needless_workers(received_ns: float, fetch_ns: float) -> None:
    assert received_ns < needless_workers.Limits().min_ratio * fetch_ns


def _has_enough_workers(before: Step, after: Simulated, workers: int, queue: int) -> None:
    now = replace(
        before,
        workers=workers,
        prefetch=queue,
        now_ns=after.batch_ns,
        batch_ns=after.batch_ns,
        rest_ns=after.batch_ns - after.wait_ns,
    )
    is_late = after.wait_ns >= 0.02 * after.batch_ns and after.workers_idle <= 0.1
    assert not is_late or not too_few_workers._helps(now, best_workers(now), too_few_workers.Limits())


def _has_few_threads(before: Step, running: float, workers_running: float, threads: int) -> None:
    limits, cores = thread_oversubscription.Limits(), before.cores or 1.0
    wanted = before.shared.ranks * threads + math.ceil(before.shared.ranks * workers_running)
    runnable = before.shared.ranks * running
    assert wanted <= limits.wanted_per_core * cores or runnable < limits.runnable_per_core * cores


def _has_a_long_queue(batch_ns: float, wait_ns: float, idle: float, deeper_ns: float) -> None:
    limits = shallow_prefetch.Limits()
    is_late = wait_ns >= 0.02 * batch_ns and idle >= limits.min_idle_share
    assert not is_late or batch_ns - deeper_ns < limits.min_wait_share * wait_ns

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity

US = 1_000


def test_each_step_has_its_part_of_the_gpu(recording: Any) -> None:
    for start in (0, 100, 300):
        recording.step(start, 80)
        recording.work(start + 10, 40)
        recording.copy(start + 45, 15)
        recording.work(start + 70, 5, "ncclDevKernel_AllReduce")
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    table = gpu.steps.table
    assert table["period"].to_list() == [100 * US, 200 * US, None]
    assert table["busy_ns"].to_list() == [55 * US] * 3
    assert table["idle_ns"].to_list() == [45 * US, 145 * US, 25 * US]
    assert table["kernels"].to_list() == [2, 2, 2]
    assert table["h2d_exposed_ns"].to_list() == [10 * US] * 3
    assert table["collective_exposed_ns"].to_list() == [5 * US] * 3
    assert gpu.steps.median_period_ns == 150 * US
    assert gpu.steps.busy_share == pytest.approx(165 / 380)


def test_without_marked_steps_there_are_none(recording: Any) -> None:
    recording.work(0, 10)
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert (gpu.steps.table.height, gpu.steps.median_period_ns, gpu.steps.busy_share) == (0, None, None)


def test_the_thread_with_most_marks_counts(recording: Any) -> None:
    recording.work(0, 10)
    for start in (0, 100, 200):
        recording.step(start, 50)
    recording.host(0, 300, "step", "step", thread=recording.thread(4))
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert gpu.steps.table.height == 3

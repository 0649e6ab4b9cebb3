from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.kernels.launches import Launches

US = 1_000


def launches(recording: Any) -> Launches:
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    return gpu.launches


def test_a_host_that_is_ahead_has_its_lead(recording: Any) -> None:
    for number in range(11):
        recording.work(100 * number, 100, launched=10 * number - 10, call_took=4)
    found = launches(recording)
    assert found.run_ahead_ns == pytest.approx((5 * 90 + 10) * US)
    assert found.delay_ns == pytest.approx(10 * US)
    assert (found.call_ns, found.kernel_ns) == (4 * US, 100 * US)
    assert found.short_share == 0


def test_short_kernels_are_counted(recording: Any) -> None:
    for number in range(4):
        recording.work(100 * number, 3 if number else 50, launched=100 * number - 10, call_took=8)
    found = launches(recording)
    assert found.short_share == pytest.approx(0.75)
    assert found.run_ahead_ns == found.delay_ns == 10 * US


def test_other_streams_do_not_make_a_stream_busy(recording: Any) -> None:
    recording.work(0, 1_000, stream=1, launched=-10)
    recording.work(30, 10, stream=2, launched=10)
    assert launches(recording).delay_ns == pytest.approx(15 * US)


def test_kernels_of_one_graph_share_their_launch(recording: Any) -> None:
    recording.host(0, 20, "cudaGraphLaunch", link=7)
    for number in range(5):
        recording.work(30 + 2 * number, 2)
    spans = recording.builder._rows["spans"]
    for row in spans[1:]:
        row["link"] = 7
    found = launches(recording)
    assert (found.count, found.call_ns, found.delay_ns) == (1, 20 * US, 30 * US)
    assert found.short_share is None


def test_without_launches_there_is_only_their_count(recording: Any) -> None:
    recording.work(0, 10)
    assert launches(recording) == Launches(0)


def test_clocks_that_do_not_fit_give_no_lead(recording: Any) -> None:
    for number in range(10):
        recording.work(200 * number, 100, launched=200 * number + 90)
    found = launches(recording)
    assert (found.run_ahead_ns, found.delay_ns) == (None, None)
    assert found.kernel_ns == 100 * US

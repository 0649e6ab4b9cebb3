"""What a GPU did, against counting moment by moment; then the cases that counting does not cover."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfwrap.measures.account.intervals import length
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import GpuActivity, find_gpu_activity, find_whole_activity
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

US = 1_000
NAMES = ("volta_sgemm_128x64_nt", "ncclDevKernel_AllReduce", "elementwise_kernel")
KINDS = (("kernel", "kernel"), ("copy", "h2d"), ("copy", "d2h"), ("memset", "memset"))
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.integers(1, 9),
        st.sampled_from(KINDS),
        st.sampled_from(NAMES),
        st.integers(1, 3),
    ),
    min_size=1,
    max_size=14,
)
Event = tuple[int, int, tuple[str, str], str, int]


def timeline_of(events: list[Event]) -> Timeline:
    builder = TimelineBuilder()
    process = builder.process("here", 1)
    for start, took, (category, operation), name, stream in events:
        builder.add_row(
            "spans",
            start=start,
            duration=took,
            track=builder.stream(process, stream, f"gpu/0 stream {stream}"),
            name=name,
            category=category,
            operation=operation,
            source="nsys",
        )
    return builder.build({})


def moments(events: list[Event], wanted: Callable[[Event], bool]) -> set[int]:
    return {moment for event in events if wanted(event) for moment in range(event[0], event[0] + event[1])}


def is_kernel(event: Event) -> bool:
    return event[2][0] == "kernel"


def is_nccl(event: Event) -> bool:
    return is_kernel(event) and event[3].startswith("nccl")


@given(EVENTS)
def test_every_figure_is_what_counting_says(events: list[Event]) -> None:
    (gpu,) = find_gpu_activity(Evidence(timeline_of(events)))
    first, last = min(event[0] for event in events), max(event[0] + event[1] for event in events)
    busy, kernels = moments(events, lambda _: True), moments(events, is_kernel)
    assert gpu.window_ns == last - first
    assert (gpu.busy_ns, gpu.kernels_busy_ns) == (len(busy), len(kernels))
    collectives = moments(events, is_nccl)
    assert gpu.collective_ns == len(collectives)
    others = moments(events, lambda event: is_kernel(event) and not is_nccl(event))
    assert length(gpu.exposed_collectives) == len(collectives - others)
    assert length(gpu.exposed_h2d) == len(moments(events, lambda event: event[2][1] == "h2d") - kernels)
    assert length(gpu.exposed_copies) == len(moments(events, lambda event: event[2][0] == "copy") - kernels)
    streams = [moments(events, lambda event, number=number: event[4] == number) for number in (1, 2, 3)]
    at_once = {moment for moment in busy if sum(moment in stream for stream in streams) >= 2}
    assert gpu.overlap_ns == len(at_once)
    assert sum(gpu.idle_shares.values()) + gpu.busy_share == pytest.approx(1)
    assert sum(kind.duration_ns for kind in gpu.classes) == sum(
        event[1] for event in events if is_kernel(event)
    )


def only(recording: Any) -> GpuActivity:
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    return gpu


def test_without_a_record_there_is_no_activity(recording: Any) -> None:
    recording.host(0, 5, "cudaLaunchKernel", link=1)
    assert find_gpu_activity(Evidence(recording.build())) == ()
    assert find_whole_activity(recording.build()) is None


def test_time_between_two_windows_is_not_idle(recording: Any) -> None:
    for start in (0, 1_000):
        recording.work(start, 10, launched=start - 5)
        recording.work(start + 20, 10, launched=start + 12)
        recording.builder.add_row(
            "coverage",
            what="kernels",
            track=recording.process,
            start=(start - 10) * US,
            end=(start + 40) * US,
            source="kineto",
        )
    gpu = only(recording)
    assert gpu.window_ns == 60 * US
    assert gpu.busy_share == pytest.approx(2 / 3)


def test_of_two_sources_that_saw_a_gpu_the_one_with_more_counts(recording: Any) -> None:
    recording.work(0, 10)
    recording.source = "nsys"
    recording.work(1, 10)
    recording.work(20, 10)
    gpu = only(recording)
    assert (gpu.events.source, gpu.count("kernel")) == ("nsys", 2)


def test_devices_are_alone_and_together(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.work(5, 10, device=1, launched=-3)
    first, second = find_gpu_activity(Evidence(recording.build()))
    assert (first.device, second.device) == ("gpu/0", "gpu/1")
    assert (first.window_ns, second.window_ns) == (10 * US, 10 * US)
    whole = find_whole_activity(recording.build())
    assert whole is not None
    assert (whole.window_ns, whole.busy_ns, whole.events.launches) == (15 * US, 15 * US, 2)


@pytest.mark.parametrize(("other", "launches"), [(False, [2]), (True, [1, 1])])
def test_launches_whose_kernels_were_lost_count_where_only_one_gpu_was_used(
    recording: Any, other: bool, launches: list[int]
) -> None:
    recording.work(0, 10, launched=-5)
    recording.host(20, 2, "cudaLaunchKernel", link=99)
    recording.host(25, 2, "cudaEventRecord", link=100)
    if other:
        recording.work(30, 10, device=1, launched=28)
    assert [gpu.events.launches for gpu in find_gpu_activity(Evidence(recording.build()))] == launches


def test_classes_give_the_time_on_tensor_cores(recording: Any) -> None:
    recording.work(0, 30, "ampere_bf16_s16816gemm_bf16_128x128")
    recording.work(30, 10, "ampere_sgemm_32x128_tn")
    recording.work(40, 5, "elementwise_kernel")
    gemm, elementwise = only(recording).classes
    assert (gemm.name, gemm.count, gemm.tensor_ns, gemm.plain_ns) == ("gemm", 2, 30 * US, 10 * US)
    assert (elementwise.name, elementwise.duration_ns) == ("elementwise", 5 * US)


def test_the_recorders_own_phases_are_no_kernels(recording: Any) -> None:
    recording.work(0, 10, category="forward", operation="gpu")
    assert find_gpu_activity(Evidence(recording.build())) == ()
    assert recording.build().spans.filter(pl.col("operation") == "gpu").height == 1

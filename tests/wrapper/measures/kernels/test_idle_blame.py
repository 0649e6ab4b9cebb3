"""Idle moments go to what the host was at: a slow obvious reference first, then each blame by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.kernels.idle_blame import BLAMES
from perfwrap.timeline.builder import TimelineBuilder
from perfwrap.timeline.model import Timeline

HOST = (
    ("data", "data", "data"),
    ("cudaMalloc", "other", "allocation"),
    ("cudaStreamSynchronize", "other", "sync"),
    ("op", "other", "dispatch"),
)
"""Operation, category and blame, in the order in which they explain."""

Work = list[tuple[int, int, int]]
Calls = list[tuple[int, int, int]]
WORK = st.lists(st.tuples(st.integers(5, 60), st.integers(1, 6), st.integers(1, 12)), min_size=1, max_size=8)
CALLS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9), st.integers(0, len(HOST) - 1)), max_size=8)


def timeline_of(work: Work, calls: Calls) -> Timeline:
    """Return kernels, each launched so long before its start, and what the main thread did; a unit is a nanosecond."""
    builder = TimelineBuilder()
    process = builder.process("here", 1)
    main, other = builder.thread(process, 1, "main", 1), builder.thread(process, 2, "launcher", 2)
    stream = builder.stream(process, 9, "gpu/0 stream 7")
    shared = {"source": "kineto", "name": "x"}
    for link, (start, took, before) in enumerate(work):
        row = {"category": "kernel", "operation": "kernel", "link": link, **shared}
        builder.add_row("spans", start=start, duration=took, track=stream, **row)
        row = {"category": "other", "operation": "launch", "link": link, **shared}
        builder.add_row("spans", start=start - before, duration=1, track=other, **row)
    builder.add_row("spans", start=500, duration=1, track=main, category="other", operation="op", **shared)
    for start, took, kind in calls:
        operation, category, _ = HOST[kind]
        row = {"category": category, "operation": operation, **shared}
        builder.add_row("spans", start=start, duration=took, track=main, **row)
    return builder.build({})


def expected(work: Work, calls: Calls) -> dict[str, int]:
    """Return the blame of each idle moment, counted one by one."""
    busy = {moment for start, took, _ in work for moment in range(start, start + took)}
    found: dict[str, int] = {}
    for moment in range(min(busy), max(busy)):
        if moment in busy:
            continue
        begin = max(one for one in busy if one < moment) + 1
        end = min(one for one in busy if one > moment)
        # Of several that begin at once the first by length, as the table stands.
        _, _, before = min((one for one in work if one[0] == end), key=lambda one: -one[1])
        blame = blame_at(moment, begin, end - before, calls)
        found[blame] = found.get(blame, 0) + 1
    return found


def blame_at(moment: int, dry: int, launched: int, calls: Calls) -> str:
    """Return the blame of one moment of a gap."""
    if launched < dry:
        return "queued"
    if moment >= launched:
        return "dispatch"
    held = [HOST[kind][2] for start, took, kind in calls if start <= moment < start + took]
    blame = next((name for _, _, name in HOST if name in held), "python")
    in_sync = any(HOST[kind][2] == "sync" and start <= dry < start + took for start, took, kind in calls)
    return "sync" if in_sync and blame in ("dispatch", "python") else blame


@given(WORK, CALLS)
@example([(5, 1, 1), (7, 1, 8)], [])  # launched before the clock's zero
def test_every_idle_moment_is_blamed_as_the_slow_reference_does(work: Work, calls: Calls) -> None:
    (gpu,) = find_gpu_activity(Evidence(timeline_of(work, calls)))
    pieces = gpu.idle
    lengths = (pieces["end"] - pieces["start"]).to_list()
    found: dict[str, int] = {}
    for blame, took in zip(pieces["blame"].to_list(), lengths, strict=True):
        found[blame] = found.get(blame, 0) + took
    assert found == expected(work, calls)


def shares(recording: Any) -> dict[str, float]:
    """Return the idle blames of the only GPU in microseconds."""
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert sum(gpu.idle_shares.values()) + gpu.busy_share == pytest.approx(1)
    assert set(gpu.idle_shares) <= set(BLAMES)
    return {blame: share * gpu.window_ns / 1000 for blame, share in gpu.idle_shares.items()}


def two_kernels(recording: Any, launched: float = 95, **more: Any) -> None:
    """Write a kernel from 0 to 10 and one from 100 on, with functions of the framework long before."""
    recording.host(-50, 5, "op")
    recording.work(0, 10, launched=-5)
    recording.work(100, 10, launched=launched, **more)


@pytest.mark.parametrize(
    ("operation", "category", "blame"),
    [
        ("data", "data", "data"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "other", "data"),
        ("save", "checkpoint", "checkpoint"),
        ("hipFree", "other", "allocation"),
        ("cudaHostAlloc", "other", "allocation"),
        ("cuMemCreate", "other", "allocation"),
        ("gc", "gc", "gc"),
        ("overhead", "other", "profiler"),
        ("compile", "compile", "compile"),
        ("all_reduce", "collective", "collective"),
        ("cudaDeviceSynchronize", "other", "sync"),
        ("hipEventSynchronize", "other", "sync"),
        ("item", "sync", "sync"),
        ("cudaMemcpyAsync", "other", "transfer"),
        ("op", "other", "dispatch"),
        ("cudaLaunchKernel", "other", "dispatch"),
        ("nvtx", "other", "python"),
    ],
)
def test_what_the_host_was_at_is_to_blame(recording: Any, operation: str, category: str, blame: str) -> None:
    two_kernels(recording)
    recording.host(20, 60, operation, category)
    found = shares(recording)
    assert found[blame] == pytest.approx(60 + 25 * (blame == "python") + 5 * (blame == "dispatch"))


def test_a_call_of_the_system_is_a_wait_for_who_knows_what(recording: Any) -> None:
    two_kernels(recording)
    recording.host(20, 60, "osrt", name="pthread_cond_timedwait")
    assert shares(recording)["waiting"] == pytest.approx(60)


def test_until_the_queue_fills_again_a_sync_is_to_blame(recording: Any) -> None:
    two_kernels(recording)
    recording.host(5, 10, "cudaStreamSynchronize")
    recording.host(20, 60, "op")
    assert shares(recording) == {"sync": pytest.approx(85), "dispatch": pytest.approx(5)}


def test_a_wait_for_data_after_a_sync_stays_one(recording: Any) -> None:
    two_kernels(recording)
    recording.host(5, 10, "cudaStreamSynchronize")
    recording.host(20, 60, "data", "data")
    assert shares(recording)["data"] == pytest.approx(60)


def test_work_that_was_launched_before_is_queued(recording: Any) -> None:
    two_kernels(recording, launched=5)
    recording.host(20, 60, "data", "data")
    assert shares(recording) == {"queued": pytest.approx(90)}


def test_a_launch_that_was_not_recorded_is_not_known(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.work(100, 10)
    recording.host(20, 60, "data", "data")
    assert shares(recording) == {"unknown": pytest.approx(90)}


def test_clocks_that_do_not_fit_give_no_cause(recording: Any) -> None:
    for number in range(10):
        start = 200 * number
        recording.work(start, 100, launched=start + 90)
        recording.host(start + 120, 50, "data", "data")
    assert list(shares(recording)) == ["unknown"]


def test_without_functions_of_the_framework_the_host_is_all_that_is_known(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.work(5_000, 10, launched=4_990)
    assert shares(recording)["host"] == pytest.approx(4_980)


def test_close_calls_of_the_driver_are_one_run_of_launching(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.work(200, 10, launched=190)
    assert shares(recording) == {"dispatch": pytest.approx(190)}


def test_calls_of_two_steps_are_not_one_run_of_launching(recording: Any) -> None:
    for start in (0, 1_000):
        recording.step(start, 850)
        recording.work(start + 20, 830, launched=start + 10, call_took=835)
    assert shares(recording)["between_steps"] == pytest.approx(150)


def test_setting_up_a_copy_is_its_own_blame(recording: Any) -> None:
    recording.host(-50, 5, "op")
    recording.work(0, 10, launched=-5)
    recording.copy(100, 10, launched=40)
    assert shares(recording)["transfer"] == pytest.approx(60)


def silent_steps(recording: Any, direction: str) -> None:
    """Write two marked steps with nothing between, each beginning with a copy."""
    for start in (0, 10_000):
        recording.step(start, 1_000)
        recording.copy(start + 100, 200, direction, launched=start + 50)
        recording.work(start + 300, 700, launched=start + 290)


def test_between_marked_steps_the_batch_is_inferred_where_the_next_one_brings_it(recording: Any) -> None:
    silent_steps(recording, "h2d")
    assert shares(recording)["data"] == pytest.approx(9_000)
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    assert gpu.idle.filter("inferred")["blame"].unique().to_list() == ["data"]


def test_else_it_is_only_between_the_steps(recording: Any) -> None:
    silent_steps(recording, "d2d")
    assert shares(recording)["between_steps"] == pytest.approx(9_000)


def test_what_other_threads_do_is_not_to_blame(recording: Any) -> None:
    two_kernels(recording)
    recording.host(20, 60, "cudaMalloc", thread=recording.thread(5))
    assert "allocation" not in shares(recording)


def test_the_thread_that_runs_the_backward_pass_counts(recording: Any) -> None:
    engine = recording.thread(5)
    two_kernels(recording, thread=engine)
    recording.host(20, 60, "cudaMalloc", thread=engine)
    assert shares(recording)["allocation"] == pytest.approx(60)

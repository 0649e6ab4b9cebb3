from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perfwrap.measures.kernels.critical_path import find_critical_path
from perfwrap.measures.kernels.gpu_events import find_gpu_events
from perfwrap.timeline.builder import TimelineBuilder

US = 1_000


def path(recording: Any) -> dict[str, float] | None:
    """Return the parts of the path in microseconds."""
    timeline = recording.build()
    (events,) = find_gpu_events(timeline)
    found = find_critical_path(timeline, events)
    return None if found is None else {part: took / US for part, took in found.parts.items()}


def host(recording: Any) -> dict[str, float]:
    """Return what the host was at in its part of the path, in microseconds."""
    timeline = recording.build()
    (events,) = find_gpu_events(timeline)
    found = find_critical_path(timeline, events)
    assert found is not None
    assert sum(found.host.values()) == found.parts.get("host", 0)
    return {blame: took / US for blame, took in found.host.items()}


def let_wait(recording: Any, stream: int, called: float, source: int, recorded: float) -> None:
    """Write that a stream waits for an event of another one."""
    recorder = recording.builder
    waiting, other = (
        recorder.stream(recording.process, (1 << 40) + number, f"gpu/0 stream {number}")
        for number in (stream, source)
    )
    recorder.add_row(
        "marks",
        time=round(called * US),
        track=waiting,
        name="stream_wait",
        detail=f"{other} {round(recorded * US)}",
        source="kineto",
    )


def test_a_busy_gpu_is_the_path(recording: Any) -> None:
    for number in range(5):
        recording.work(100 * number, 98, launched=10 * number - 20)
    assert path(recording) == {"elementwise": 490, "queued": 8}


def test_a_host_that_launches_late_is_on_the_path(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.host(20, 200, "op")
    recording.work(300, 10, launched=290)
    assert path(recording) == {"host": 290, "elementwise": 10, "launch": 10}


def test_a_wait_of_the_host_leads_back_to_the_gpu(recording: Any) -> None:
    recording.work(0, 100, launched=-5)
    recording.host(20, 85, "cudaStreamSynchronize")
    recording.work(150, 50, launched=140)
    assert path(recording) == {"elementwise": 150, "host": 40, "launch": 10}


def test_a_call_that_came_back_at_once_was_no_wait(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.host(5, 12, "cudaMemcpyAsync")
    recording.work(150, 50, launched=140)
    assert path(recording) == {"host": 140, "elementwise": 50, "launch": 10}


def test_work_that_others_hide_is_not_on_the_path(recording: Any) -> None:
    recording.work(0, 500, launched=-5)
    recording.copy(100, 300, launched=-3)
    assert path(recording) == {"elementwise": 500}


def test_another_stream_that_was_waited_for_is_on_the_path(recording: Any) -> None:
    recording.work(0, 100, launched=-5)
    recording.copy(0, 300, launched=-4)
    recording.work(301, 100, launched=-3)
    assert path(recording) == {"copy": 300, "elementwise": 100, "queued": 1}


def test_of_recorded_waits_the_stream_that_was_waited_for_is_on_the_path_not_the_one_that_ended_last(
    recording: Any,
) -> None:
    recording.work(0, 100, launched=-9)
    recording.copy(0, 200, launched=-8, stream=8)
    recording.copy(0, 290, launched=-7, stream=9)
    let_wait(recording, 7, -5, 8, -6)
    recording.work(300, 100, launched=-4)
    assert path(recording) == {"copy": 200, "elementwise": 100, "queued": 100}


def test_an_event_represents_what_was_launched_before_it_was_recorded(recording: Any) -> None:
    recording.copy(0, 100, launched=-9, stream=8)
    recording.copy(100, 150, launched=-2, stream=8)
    let_wait(recording, 7, -5, 8, -6)
    recording.work(101, 400, launched=-4)
    assert path(recording) == {"copy": 100, "elementwise": 400, "queued": 1}


def test_the_order_of_a_stream_counts_beside_its_waits_for_others(recording: Any) -> None:
    recording.work(0, 300, launched=-9)
    recording.copy(0, 100, launched=-8, stream=8)
    let_wait(recording, 7, -5, 8, -6)
    recording.work(302, 100, launched=-4)
    assert path(recording) == {"elementwise": 400, "queued": 2}


def test_the_hosts_part_is_reported_by_what_it_did(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.host(20, 100, "next", "data")
    recording.host(120, 150, "op")
    recording.host(260, 5, "cudaMalloc")
    recording.work(300, 10, launched=290)
    assert host(recording) == {"dispatch": 145, "data": 100, "python": 40, "allocation": 5}


@pytest.mark.parametrize("launched", [None, 60])
def test_a_chain_in_doubt_is_not_reported(recording: Any, launched: float | None) -> None:
    for number in range(3):
        recording.work(200 * number, 10, launched=None if launched is None else 200 * number + launched)
    assert path(recording) is None


def test_a_host_of_which_nothing_was_recorded_while_the_gpu_was_busy_leaves_it_in_doubt(
    recording: Any,
) -> None:
    for number in range(9):
        recording.work(1000 * number, 980, launched=1000 * number - 1)
    assert path(recording) is None


def test_an_unrecorded_host_is_reported_where_the_gpu_was_idle(recording: Any) -> None:
    recording.work(0, 10, launched=-5)
    recording.work(900, 10, launched=890)
    assert host(recording) == {"host": 890}


WORK = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 9), st.integers(1, 20), st.integers(1, 2)),
    min_size=1,
    max_size=12,
)
WAITS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=6)


@settings(max_examples=25, deadline=None)
@given(WORK, WAITS)
def test_the_parts_make_the_window(
    work: list[tuple[int, int, int, int]], waits: list[tuple[int, int]]
) -> None:
    builder = TimelineBuilder()
    process = builder.process("here", 1)
    main = builder.thread(process, 1, "main", 1)
    shared = {"name": "sgemm", "source": "nsys"}
    for link, (start, took, before, number) in enumerate(work):
        stream = builder.stream(process, 9 + number, f"gpu/0 stream {number}")
        row = {"category": "kernel", "operation": "kernel", "link": link, **shared}
        builder.add_row("spans", start=start, duration=took, track=stream, **row)
        row = {"category": "other", "operation": "cudaLaunchKernel", "link": link, **shared}
        builder.add_row("spans", start=start - before, duration=1, track=main, **row)
    for start, took in waits:
        row = {"category": "sync", "operation": "sync", **shared}
        builder.add_row("spans", start=start, duration=took, track=main, **row)
    timeline = builder.build({})
    (events,) = find_gpu_events(timeline)
    found = find_critical_path(timeline, events)
    if found is None:
        # Nothing of any length ran, or what has none widens the window by itself.
        return
    parts = found.parts
    assert all(took >= 0 for took in parts.values())
    assert sum(found.host.values()) == parts.get("host", 0)
    lengths = [(start, start + took) for start, took, _, _ in work if took]
    assert sum(parts.values()) == max(end for _, end in lengths) - min(one[0] for one in work)

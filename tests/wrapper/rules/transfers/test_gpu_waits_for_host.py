from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.gpu_activity import find_gpu_activity
from perfwrap.measures.kernels.idle_places import find_idle_places
from perfwrap.rules.model import Clear
from perfwrap.rules.transfers import gpu_waits_for_host as rule


def steps(recording: Any, busy: float = 300, launched: bool = True, count: int = 10) -> None:
    """Write marked steps of 1 ms, each with six kernels at its start."""
    for number in range(count):
        start = 1_000 * number
        recording.step(start, 1_000)
        for kernel in range(6):
            at = start + busy / 6 * kernel
            recording.work(at, busy / 6, launched=at - 5 if launched else None)


def blocked(recording: Any, call: str, name: str = "## sparse_data_dist ##") -> None:
    """Let the host be inside a call, in a range of the program, in the second half of each step."""
    for start in range(0, 10_000, 1_000):
        recording.host(start + 310, 680, "nvtx", name=name)
        recording.host(start + 320, 660, call)


def imported(recording: Any) -> Any:
    """Return the diagnosis of the recording as an imported file."""
    return diagnose(replace(recording.build(), run={"imported": [{"file": "a.json", "format": "kineto"}]}))


@pytest.mark.parametrize(
    ("call", "verdict", "words"),
    [
        ("cudaMemcpyAsync", "transfer-bound", "while the host is in calls that copy between host and GPU"),
        (
            "hipMemcpyWithStream",
            "transfer-bound",
            "while the host is in calls that copy between host and GPU",
        ),
        ("cudaStreamSynchronize", "sync-bound", "while the host waits for the GPU, and then launches again"),
    ],
)
def test_a_blocking_call_and_the_range_around_it_are_named(
    gpu_loop: Any, call: str, verdict: str, words: str
) -> None:
    steps(gpu_loop.recording)
    blocked(gpu_loop.recording, call)
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.66, abs=0.05)
    assert finding.verdict == verdict
    assert words in finding.title
    assert "most of it in the range sparse_data_dist" in finding.title
    (place,) = [text for text in finding.evidence if f"inside {call}:" in text]
    # What follows the last kernel is outside of the recorded window.
    assert "9 calls, 5.9 ms on the host" in place
    assert "pin" in finding.advice


def test_the_finding_gives_the_verdict_of_an_imported_file(gpu_loop: Any) -> None:
    steps(gpu_loop.recording)
    blocked(gpu_loop.recording, "cudaMemcpyAsync")
    diagnosis = imported(gpu_loop.recording)
    assert diagnosis.verdict.id == "transfer-bound"
    assert "sparse_data_dist" in diagnosis.verdict.sentence


def test_work_of_the_host_that_was_not_recorded_is_an_idle_gpu(gpu_loop: Any) -> None:
    steps(gpu_loop.recording)
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.7, abs=0.05)
    assert finding.verdict == "gpu-idle"
    assert "while the host does work that was not recorded" in finding.title
    assert "Record what the host does" in finding.advice
    assert finding.saving == (1.0, 1.0)


def test_a_recording_without_the_launches_does_not_show_the_reasons(gpu_loop: Any) -> None:
    steps(gpu_loop.recording, launched=False)
    finding = gpu_loop.find(rule)
    assert "for reasons that the recording does not show" in finding.title
    assert finding.verdict == "gpu-idle"


def test_a_busy_gpu_is_clear(gpu_loop: Any) -> None:
    steps(gpu_loop.recording, busy=940)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_idle_time_that_another_rule_reports_is_left_to_it(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=8)
    answer = gpu_loop.ask(rule)
    assert isinstance(answer, Clear)
    assert "other rules explain" in answer.why


def test_waits_for_data_are_left_to_their_rule(gpu_loop: Any) -> None:
    steps(gpu_loop.recording)
    for start in range(0, 10_000, 1_000):
        gpu_loop.recording.host(start + 300, 690, "data", "data")
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_copies_that_the_idle_time_prepares_are_left_to_their_rule(gpu_loop: Any) -> None:
    steps(gpu_loop.recording)
    for start in range(0, 10_000, 1_000):
        gpu_loop.recording.copy(start + 650, 340, launched=start + 310, call_took=670)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"


def test_the_inner_of_two_ranges_is_named_and_one_around_everything_is_not(gpu_loop: Any) -> None:
    recording = gpu_loop.recording
    recording.host(-10, 10_100, "nvtx", name="whole program")
    steps(recording)
    blocked(recording, "cudaMemcpyAsync")
    for start in range(0, 10_000, 1_000):
        recording.host(start + 50, 945, "nvtx", name="outer")
    (gpu,) = find_gpu_activity(Evidence(recording.build()))
    places = find_idle_places(gpu, ["transfer"])
    assert [(place.kind, place.name, place.count) for place in places] == [
        ("call", "cudaMemcpyAsync", 9),
        ("range", "## sparse_data_dist ##", 9),
    ]
    assert [place.idle_ns for place in places] == [pytest.approx(5.9e6, rel=0.1)] * 2


def test_no_idle_time_is_nowhere(gpu_loop: Any) -> None:
    steps(gpu_loop.recording)
    (gpu,) = find_gpu_activity(Evidence(gpu_loop.recording.build()))
    assert find_idle_places(gpu, ["data"]) == ()

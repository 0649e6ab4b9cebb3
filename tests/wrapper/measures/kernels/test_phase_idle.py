"""Idle time between timed phases goes to what the training thread did then."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.kernels.phase_idle import PhaseIdle, find_phase_idle
from perfwrap.measures.trainers import find_trainers

US = 1_000
STREAM = 9


def begin(run: Any) -> Any:
    """Begin a journal that knows a stream."""
    journal = run.journal(opened=10**9)
    journal.name_thread(STREAM, "cuda/0 stream 0", 0)
    return journal


def phase(journal: Any, operation: str, duration: int) -> None:
    """Write a phase in which the GPU is at work as long as the host."""
    start = journal.now
    getattr(journal, operation)(duration)
    journal.gpu(operation, start, duration)


def idle_of(run: Any) -> PhaseIdle:
    """Return the idle time of the only trainer's GPU."""
    timeline = run.read()
    (trainer,) = find_trainers(Evidence(timeline))
    found = Evidence(timeline).get(find_phase_idle, trainer)
    assert found is not None
    return found


def test_the_time_between_phases_goes_to_what_the_host_did(run: Any) -> None:
    journal = begin(run)
    for _ in range(40):
        journal.data(100 * US)
        phase(journal, "forward", 300 * US)
        journal.python(50 * US)
        phase(journal, "backward", 350 * US)
        phase(journal, "optimizer", 200 * US)
    found = idle_of(run)
    assert found.steps >= 20
    assert found.shares == pytest.approx({"data": 0.1, "python": 0.05})
    assert found.busy_ns + sum(found.idle_ns.values()) == found.duration_ns


def test_what_follows_a_wait_for_the_gpu_is_the_waits(run: Any) -> None:
    journal = begin(run)
    for _ in range(40):
        phase(journal, "forward", 300 * US)
        # The GPU works until the wait is nearly over, and is idle until the host launches again.
        start = journal.now
        journal.backward(100 * US)
        journal.gpu("backward", start, 380 * US, (0, 280))
        journal.span("sync", 300 * US, "Tensor.item")
        journal.python(100 * US)
        phase(journal, "optimizer", 200 * US)
    found = idle_of(run)
    assert set(found.idle_ns) == {"sync"}
    assert found.shares["sync"] == pytest.approx(0.12)


def test_without_timed_steps_nothing_is_known(run: Any) -> None:
    journal = run.journal(opened=10**9)
    for _ in range(40):
        journal.forward(300 * US)
        journal.optimizer(200 * US)
    timeline = run.read()
    (trainer,) = find_trainers(Evidence(timeline))
    assert Evidence(timeline).get(find_phase_idle, trainer) is None

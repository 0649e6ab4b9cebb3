"""Energy is the difference of counters over the run, and over its steady loop for a step."""

from __future__ import annotations

from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.diagnosis.prices import Price
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.run.energy import Energy, find_energy
from perfwrap.reports import energy_text

SECOND = 1_000_000_000
STEP = 100_000_000


def record(run: Any, steps: int = 100, counters: bool = True, power: bool = False) -> None:
    """Write a loop of 0.1 s steps whose GPU takes 300 W and whose processors take 100 W, from 10 s before it on."""
    journal = run.journal(opened=20 * SECOND)
    for _ in range(steps):
        journal.data(STEP // 2)
        journal.forward(STEP // 4)
        journal.optimizer(STEP // 4)
    monitors = run.journal(pid=200, role="monitor", opened=10 * SECOND)
    monitors.fact("gpu/0/name", "H100")
    monitors.fact("gpu/0/process/100/owner", "run")
    for moment in range(10, 21 + steps // 10):
        monitors.sample("gpu/0", "utilization_share", 1.0, moment * SECOND)
        if counters:
            monitors.sample("gpu/0", "energy_joules", 5e6 + 300.0 * moment, moment * SECOND)
            monitors.sample("host", "cpu_energy_joules", 80.0 * moment, moment * SECOND)
            monitors.sample("host", "dram_energy_joules", 20.0 * moment, moment * SECOND)
        if power:
            monitors.sample("gpu/0", "power_watts", 300.0, moment * SECOND)


def energy_of(run: Any) -> Energy | None:
    """Return the run's energy."""
    return Evidence(run.read()).get(find_energy)


def test_a_run_and_a_step_have_the_energy_of_their_time(run: Any) -> None:
    record(run)
    found = energy_of(run)
    assert found is not None
    assert (found.gpus, found.sampled) == (1, False)
    assert found.gpu_joules == pytest.approx(300 * 20)
    assert found.processor_joules == pytest.approx(100 * 20)
    assert found.gpu_step_joules == pytest.approx(30, rel=0.02)
    assert found.processor_step_joules == pytest.approx(10, rel=0.02)
    assert found.joules == pytest.approx(8000)


def test_power_stands_for_a_counter_that_a_gpu_lacks(run: Any) -> None:
    record(run, counters=False, power=True)
    found = energy_of(run)
    assert found is not None
    assert found.sampled
    assert found.gpu_joules == pytest.approx(300 * 20)
    assert found.gpu_step_joules == pytest.approx(30, rel=0.02)
    assert found.processor_joules is None


def test_what_was_not_measured_is_no_zero(run: Any) -> None:
    record(run, counters=False)
    assert energy_of(run) is None


def test_a_short_loop_has_energy_but_none_per_step(run: Any) -> None:
    record(run, steps=15)
    found = energy_of(run)
    assert found is not None
    assert found.gpu_joules
    assert found.step_joules is None


def test_the_report_says_energy_and_cost(run: Any) -> None:
    record(run)
    timeline = run.read()
    diagnosis = diagnose(timeline, price=Price(0.36, "EUR", True))
    energy, cost = energy_text.sentences(diagnosis)
    assert energy == (
        "Energy: 6 kJ by 1 GPU and 2 kJ by the machine's processors, other programs included; per step 30 J of the "
        "GPUs and 10 J of the processors."
    )
    assert cost == "Cost: 0.0008 EUR for its energy, 4 EUR per million steps."
    assert energy_text.short(diagnosis) == "40 J per step"
    by_time = diagnose(timeline, price=Price(3.6, "USD", False))
    assert by_time.cost is None  # this run has no end
    assert diagnose(timeline).cost is None

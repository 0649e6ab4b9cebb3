from __future__ import annotations

from typing import Any

import pytest
from perfwrap.live.devices import gpus_now, processes_now
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.trainers import find_trainers

SECOND = 1_000_000_000


def watched(run: Any) -> Any:
    """Write a trainer with a worker, and a monitor that saw both and one more for twenty seconds."""
    trainer = run.journal(pid=100, rank=0)
    for _ in range(30):
        trainer.step()
    run.journal(pid=101, role="worker", worker_id=3).data()
    monitor = run.journal(pid=50, role="monitor")
    for key, value in (("name", "H100"), ("memory_total_bytes", 80 << 30)):
        monitor.fact(f"gpu/0/{key}", value)
    monitor.fact("process/102/cmdline", "/usr/bin/python serve.py --port 1")
    for second in range(20):
        now = second * SECOND
        for pid, cores in ((100, 1.0), (101, 0.5), (102, 2.0)):
            if pid != 102 or second < 10:
                monitor.sample(f"process/{pid}", "cpu_cores", cores, now)
        monitor.sample("process/100", "rss_bytes", 1e9, now)
        monitor.sample("gpu/0", "utilization_share", 0.2 if second < 10 else 0.9, now)
        monitor.sample("gpu/0", "temperature_celsius", 30 + second, now)
        monitor.sample("gpu/0", "throttle/power_cap", float(second < 10), now)
    return Evidence(run.read())


def test_a_gpu_is_shown_by_its_last_seconds(run: Any) -> None:
    (gpu,) = gpus_now(watched(run).timeline)
    assert gpu.figures.name == "H100 (gpu/0)"
    assert gpu.figures.utilization == pytest.approx(0.9)
    assert gpu.figures.throttle_reasons == ()
    assert gpu.temperature_celsius == pytest.approx(47, abs=1)


def test_living_processes_are_shown_trainers_first_and_those_that_ended_are_not(run: Any) -> None:
    evidence = watched(run)
    found = [
        (one.pid, one.who, one.cpu_cores)
        for one in processes_now(evidence.timeline, evidence.get(find_trainers))
    ]
    assert found == [(100, "rank 0", 1.0), (101, "worker 3", 0.5)]


def test_without_a_monitor_processes_have_no_figures_rather_than_zeros(run: Any) -> None:
    trainer = run.journal(pid=100)
    for _ in range(30):
        trainer.step()
    evidence = Evidence(run.read())
    (only,) = processes_now(evidence.timeline, evidence.get(find_trainers))
    assert (only.who, only.cpu_cores, only.rss_bytes) == ("trainer", None, None)
    assert gpus_now(evidence.timeline) == ()

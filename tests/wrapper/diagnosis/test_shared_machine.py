"""The verdict says so if other programs took CPU time from the training."""

from __future__ import annotations

import json
from typing import Any

from perfwrap.diagnosis.engine import diagnose
from perfwrap.reports import json as json_report
from perfwrap.reports.html.summary import verdict

OTHERS = (
    "Other programs used 50 % of the CPU during the training loop (ffmpeg 45 %), so its steps take longer than on a "
    "free machine."
)


def train(run: Any, pid: int = 100, host: str = "here", busy: float = 4.0, **facts: object) -> None:
    """Write a training that used two of four cores."""
    journal = run.journal(pid=pid, host=host, threads=1, **facts)
    for _ in range(60):
        journal.step()
    monitor = run.journal(pid=pid + 1, host=host, role="monitor", cores_usable=4, cores_online=4)
    for time in (2_000, 4_000, 6_000):
        monitor.sample("host", "cpu_cores_busy", busy, time)
        monitor.sample("host", "other_cores", 2.0, time)
        monitor.sample("host", "program/ffmpeg/cpu_cores", 1.8, time)
        monitor.sample(f"process/{pid}", "cpu_cores", 2.0, time)
        monitor.sample(f"process/{pid}", "involuntary_switches_per_s", 120.0, time)


def test_terminal_page_and_document_name_the_programs(run: Any) -> None:
    train(run)
    diagnosis = diagnose(run.read())
    assert diagnosis.verdict.id != "unknown"
    assert diagnosis.verdict.sentence.endswith(OTHERS)
    assert verdict(diagnosis)["sentence"] == diagnosis.verdict.sentence
    document = json.loads(json_report.text(diagnosis))
    assert document["verdict"]["sentence"] == diagnosis.verdict.sentence
    assert document["machine"]["other_programs"] == {
        "cores": 2.0,
        "of_cores": 4,
        "share": 0.5,
        "programs": [{"name": "ffmpeg", "share": 0.45}],
    }


def test_with_a_free_core_nothing_is_said(run: Any) -> None:
    train(run, busy=3.0)
    diagnosis = diagnose(run.read())
    assert "ther programs" not in diagnosis.verdict.sentence
    assert json_report.document(diagnosis)["machine"]["other_programs"] is None


def test_in_a_job_on_several_hosts_the_busy_one_is_named(run: Any) -> None:
    train(run, pid=100, host="here", busy=3.0, rank=0, world_size=2)
    train(run, pid=200, host="there", rank=1, world_size=2)
    assert "50 % of the CPU of there during" in diagnose(run.read()).verdict.sentence


def test_what_a_gpu_does_is_not_said_to_take_longer(run: Any) -> None:
    train(run, **{"model/Net/device": "cuda:0"})
    assert diagnose(run.read()).verdict.sentence.endswith(
        "so its steps may take longer than on a free machine."
    )

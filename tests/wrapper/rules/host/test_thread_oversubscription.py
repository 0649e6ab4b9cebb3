from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.processors import find_processors
from perfwrap.measures.main_trainer import find_main_trainer
from perfwrap.rules.host import thread_oversubscription as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, steps: int = 40) -> Any:
    for _ in range(steps):
        loop.compute()
    return loop


def test_threads_in_each_others_way_are_found(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    write(make_loop(threads=16)).cores(4, runnable=8)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert finding.saving == pytest.approx((0.5, 1.0), abs=0.02)
    assert "OMP_NUM_THREADS=4" in finding.advice
    assert finding.location is None
    assert finding.severity == "minor"


def test_a_number_of_threads_that_the_program_sets_itself_is_changed_there(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding], tmp_path: Path
) -> None:
    loop = make_loop(threads=16)
    loop.run.folder.write_manifest({"command": ["python", "train.py"], "cwd": str(tmp_path)})
    (tmp_path / "train.py").write_text("import torch\n\ntorch.set_num_threads(16)\n")
    write(loop).cores(4, runnable=8)
    finding = find(rule)
    assert (
        "torch.set_num_threads at train.py:3, which has priority where it is called, to 4." in finding.advice
    )
    assert "OMP_NUM_THREADS=4" in finding.advice
    assert str(finding.location) == "train.py:3"


def test_other_programs_tasks_are_not_charged_to_the_run(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    write(make_loop(threads=8)).cores(4, runnable=100)
    assert find(rule).share == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize(
    ("own", "severity", "seen"),
    [
        (1.0, None, ""),
        (3.0, "minor", "about 7.5 of them from this run"),
        (4.0, "critical", "10 tasks were runnable"),
    ],
)
def test_as_much_of_the_tasks_is_the_runs_own_as_of_the_busy_cores(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer], own: float, severity: str | None, seen: str
) -> None:
    loop = write(make_loop(threads=8))
    loop.cores(4, runnable=10, busy=4)
    loop.sample("process/100", "cpu_cores", own)
    answer = ask(rule)
    if severity is None:
        assert isinstance(answer, Clear)
        return
    (finding,) = answer  # type: ignore[misc]
    assert finding.share == pytest.approx(1 - 4 / min(8, 10 * own / 4), abs=0.02)
    assert finding.severity == severity
    assert seen in finding.evidence[1]


def test_a_quota_that_holds_the_run_back_is_found(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    loop = write(make_loop(threads=64))
    loop.cores(2, runnable=2)
    loop.sample("cgroup", "throttled_share", 0.4)
    finding = find(rule)
    assert finding.share == pytest.approx(0.4, abs=0.02)
    assert any("quota" in sentence for sentence in finding.evidence)


def test_as_many_threads_as_cores_are_clear(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    write(make_loop(threads=4)).cores(4, runnable=20)
    assert isinstance(ask(rule), Clear)


def test_threads_that_rarely_run_at_once_are_clear(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    write(make_loop(threads=16)).cores(4, runnable=3)
    assert isinstance(ask(rule), Clear)


def test_without_runnable_tasks_it_is_not_checked(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    write(make_loop(threads=16)).cores(4)
    assert isinstance(ask(rule), NotChecked)


def test_without_monitors_it_is_not_checked(
    make_loop: Callable[..., Any], diagnosis: Callable[[], Any]
) -> None:
    write(make_loop(threads=16))
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["thread_oversubscription"]
    assert outcome.state == "not checked"


@pytest.mark.parametrize(
    ("threads", "trainers", "workers", "edits"),
    [
        (8, 1, 0, ["Set OMP_NUM_THREADS=2 or call torch.set_num_threads(2)."]),
        (1, 4, 0, ["Start fewer processes: 4 training processes share 2 cores."]),
        (
            2,
            1,
            4,
            [
                "Set OMP_NUM_THREADS=1 or call torch.set_num_threads(1).",
                "Start fewer DataLoader workers: 4 share 2 cores.",
            ],
        ),
    ],
)
def test_fewer_threads_are_advised_only_to_processes_that_have_several(
    loop: Any, run: Any, threads: int, trainers: int, workers: int, edits: list[str]
) -> None:
    write(loop).cores(2, runnable=8)
    evidence = Evidence(run.read())
    cores = evidence.get(find_processors, evidence.get(find_main_trainer))
    crowd = replace(cores, threads_per_trainer=threads, trainers=trainers, workers=workers)
    assert [option.edit for option in rule._options(crowd, 0.5, "8 threads", None)] == edits

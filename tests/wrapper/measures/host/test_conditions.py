from __future__ import annotations

from typing import Any

from perfwrap.measures.evidence import Evidence
from perfwrap.measures.host.conditions import find_conditions
from perfwrap.timeline.model import Timeline


def conditions(timeline: Timeline) -> dict[str, str]:
    return find_conditions(Evidence(timeline))


def test_settings_versions_and_sizes_are_conditions(run: Any) -> None:
    run.folder.write_manifest(
        {
            "command": ["python", "train.py"],
            "host": {"name": "here", "cpu_model": "Some CPU", "gpus": ["H100", "H100"]},
            "environment": {"OMP_NUM_THREADS": "2"},
            "options": {"rate_hz": 10.0, "nsys": None, "out": "x", "name": "a", "tags": []},
        }
    )
    journal = run.journal(torch="2.13.0", tf32_matmul="True", world_size=8)
    for _ in range(40):
        journal.step()
    found = conditions(run.read())
    wanted = {
        "torch": "2.13.0",
        "tf32_matmul": "True",
        "world_size": "8",
        "trainers": "1",
        "samples_per_step": "32",
        "gpu": "H100, H100",
        "host/name": "here",
        "host/cpu_model": "Some CPU",
        "env/OMP_NUM_THREADS": "2",
        "run/rate_hz": "10.0",
    }
    assert {key: found.get(key) for key in wanted} == wanted
    assert not {"run/out", "run/name", "run/tags", "run/nsys"} & set(found)


def test_what_only_says_who_or_where_is_no_condition(run: Any) -> None:
    facts = {"ppid": 1, "threads/line": "a.py\x1f3\x1ff", "loader/1/workers": "7 8", "loader/1/created": "x"}
    journal = run.journal(
        **{**facts, "rank": 0, "gpu_time/0/dropped": 3, "cuda_device_uuid": "u", "threads": 4}
    )
    for _ in range(40):
        journal.step()
    found = conditions(run.read())
    assert found["threads"] == "4"
    assert not {*facts, "rank", "gpu_time/0/dropped", "cuda_device_uuid", "journal_bytes", "role"} & set(
        found
    )


def test_the_gpu_that_torch_used_counts_more_than_those_of_the_host(run: Any) -> None:
    run.folder.write_manifest({"command": ["python"], "host": {"gpus": ["A100", "H100"]}})
    journal = run.journal(cuda_device_name="NVIDIA H100")
    for _ in range(40):
        journal.step()
    assert conditions(run.read())["gpu"] == "NVIDIA H100"


def test_of_a_run_in_which_nothing_trained_the_machine_is_still_known(run: Any) -> None:
    run.folder.write_manifest({"command": ["true"], "host": {"name": "here"}})
    assert conditions(run.read()) == {"host/name": "here"}


def test_of_an_empty_timeline_nothing_is_known() -> None:
    assert conditions(Timeline()) == {}

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.health import out_of_memory as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

GIB = 1 << 30
PLACE = "train.py\x1f21\x1fmain"


def run_out(journal: Any, asked: float = 2, allocated: float = 76, reserved: float = 77) -> None:
    sizes = (asked, 80, 0.5, allocated, reserved)
    detail = "\x1f".join(["0", *(str(round(size * GIB)) for size in sizes), PLACE])
    journal.describe("MARK", "out_of_memory", journal.text(detail))


def test_the_allocating_line_is_found_with_what_was_there(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(3):
        loop.compute()
    run_out(loop.journal)
    finding = find(rule)
    assert "at train.py:21, which requested 2 GiB" in finding.sentence
    assert "in use 76 GiB" in finding.evidence[0]
    assert "_record_memory_history" in finding.evidence[1]
    assert "accumulate" in finding.advice


def test_a_reserve_in_pieces_is_another_class(loop: Any, find: Callable[[Rule], Finding]) -> None:
    for _ in range(3):
        loop.compute()
    run_out(loop.journal, allocated=50)
    assert "expandable_segments" in find(rule).advice


def test_the_largest_live_blocks_are_named_by_the_users_line(
    loop: Any, run: Any, find: Callable[[Rule], Finding]
) -> None:
    for _ in range(3):
        loop.compute()
    run_out(loop.journal)
    folder = run.folder.path / "memory"
    folder.mkdir()
    library = ("/usr/lib/python3.11/site-packages/torch/nn/functional.py", 5, "linear")
    content = {
        "perfwrap": 1,
        **dict.fromkeys(("device", "asked_bytes", "limit_bytes", "free_bytes"), 0),
        "counters": {},
        "top": [(40 * GIB, 12, (library, ("/home/me/model.py", 17, "forward"))), (GIB, 3, ())],
    }
    (folder / "here-100-1.pickle").write_bytes(pickle.dumps(content))
    assert "40 GiB from model.py:17" in find(rule).evidence[1]


@pytest.mark.parametrize(("code", "severity"), [(1, "critical"), (0, "major")])
def test_what_ended_the_run_is_critical_and_is_first(
    loop: Any, run: Any, diagnosis: Callable[[], Any], code: int, severity: str
) -> None:
    loop.loader()
    for _ in range(40):
        loop.batch(30)
        loop.compute()
    run_out(loop.journal)
    run.folder.write_manifest({"command": ["python", "train.py"], "exit": {"code": code}})
    findings = diagnosis().findings
    found = next(finding for finding in findings if finding.rule == "out_of_memory")
    assert found.severity == severity
    assert (findings[0] is found) == bool(code)


def test_a_run_that_died_before_training_still_gets_a_report(run: Any, diagnosis: Callable[[], Any]) -> None:
    run_out(run.journal())
    run.folder.write_manifest({"command": ["python", "train.py"], "exit": {"code": 1}})
    result = diagnosis()
    assert [finding.rule for finding in result.findings] == ["out_of_memory"]
    assert {outcome.rule: outcome.state for outcome in result.outcomes}["out_of_memory"] == "found"


def kill(run: Any, **memory: Any) -> None:
    known = {"processes": 1, "scope": "container", "limit_bytes": 2 * GIB, "command": True, "pids": None}
    how = {"signal": 9, "oom_kill": {**known, **memory}}
    run.folder.write_manifest({"command": ["python", "train.py"], "exit": how})


def test_a_command_that_the_kernel_killed_is_found(
    loop: Any, run: Any, find: Callable[[Rule], Finding]
) -> None:
    for _ in range(5):
        loop.compute()
    kill(run)
    finding = find(rule)
    assert (
        finding.sentence
        == "The container ran out of memory (limit 2 GiB), and the kernel killed the command."
    )
    assert finding.severity == "critical"


def test_processes_of_other_users_are_ignored(loop: Any, run: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(5):
        loop.compute()
    kill(run, command=False, pids=[], scope="machine")
    assert isinstance(ask(rule), Clear)


def test_a_run_with_memory_enough_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    for _ in range(5):
        loop.compute()
    assert isinstance(ask(rule), Clear)


def test_a_snapshot_that_cannot_be_read_costs_only_itself(
    loop: Any, run: Any, find: Callable[[Rule], Finding], diagnosis: Callable[[], Any]
) -> None:
    for _ in range(3):
        loop.compute()
    run_out(loop.journal)
    folder = run.folder.path / "memory"
    folder.mkdir()
    (folder / "here-100-1.pickle").write_bytes(pickle.dumps(len))
    assert "train.py:21" in find(rule).sentence
    assert any("here-100-1.pickle" in warning for warning in diagnosis().warnings)

"""Answers for agents are short and name what to do."""

from __future__ import annotations

from typing import Any

from perfwrap.agents import agent_answers


def finding(number: int) -> dict[str, Any]:
    """A finding as in diagnosis.json."""
    return {
        "rule": f"rule_{number}",
        "severity": "critical",
        "share": 0.5,
        "saving": {"low": 0.5, "high": 0.6},
        "location": {"file": "/work/net/train.py", "line": number},
        "advice": "Change it. " * 200,
        "experiment": "workers=2",
    }


def diagnosis(findings: int) -> dict[str, Any]:
    """A diagnosis.json with that many findings."""
    return {
        "verdict": {"id": "data-bound", "sentence": "Data-bound: it waits."},
        "steps": {"median_ns": 19_000_000, "steady": 187, "count": 200},
        "findings": [finding(number) for number in range(1, findings + 1)],
        "outcomes": {"rule_1": {"state": "found"}, "other": {"state": "not checked"}},
        "run": {"exit": {"code": 1}},
    }


def test_a_run_is_told_in_a_few_lines_with_three_findings_at_most() -> None:
    answer = agent_answers.of_run("first", diagnosis(5), "/work/net")
    lines = answer.splitlines()
    assert lines[0] == "run first: Data-bound: it waits."
    assert lines[1] == "median step 19 ms, 187 steady steps; the command ended with exit code 1"
    assert lines[2] == "1. rule_1 (critical, 50 %), train.py:1"
    assert "   Predicted step time: 50 to 60 % of now" in lines
    assert "2 more: resource perfwrap://runs/first/diagnosis.json" in lines
    assert lines[-1].startswith("1 rule not checked")
    assert len(answer) < 2_000


def fix(**changed: Any) -> dict[str, Any]:
    """A fix.json with one edit that was kept and one that was dropped."""
    row = {
        "rule": "data_loader_single_process",
        "file": "/work/train.py",
        "line": 3,
        "sentence": "Add num_workers=1.",
        "state": "kept",
        "reason": None,
        "equality": "identical",
    }
    dropped = {**row, "state": "dropped", "reason": "it is slower", "line": 9}
    return {
        "root": "/work",
        "edits": [row, dropped],
        "unedited": [],
        "total": {"ratio": 0.54, "low": 0.51, "high": 0.57},
        "patch": "--- a/train.py\n+++ b/train.py\n" + "+x\n" * 5_000,
        **changed,
    }


def test_a_fix_is_a_patch_with_its_proof_and_a_long_patch_is_cut_at_a_line() -> None:
    answer = agent_answers.of_fix("second", fix())
    assert answer.startswith(
        "Proven: step time 0.54 (0.51 to 0.57) of before (95 % interval). Results: identical."
    )
    assert "dropped: train.py:9 data_loader_single_process: it is slower" in answer
    assert "+++ b/train.py" in answer
    assert answer.endswith("+x\n… the rest: resource perfwrap://runs/second/perfwrap.patch")
    assert len(answer) < agent_answers.MAX_PATCH + 700


def test_without_a_proven_edit_no_speedup_is_named() -> None:
    answer = agent_answers.of_fix("second", fix(patch="", total=None))
    assert answer.startswith("No edit was proven")
    assert "0.54" not in answer

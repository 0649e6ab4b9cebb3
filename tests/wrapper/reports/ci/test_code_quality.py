"""GitLab's code quality report has the keys that its documentation requires."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports.ci import code_quality

SEVERITIES = {"info", "minor", "major", "critical", "blocker"}


def test_each_problem_is_an_entry_with_what_gitlab_requires(diagnosis: Diagnosis, script: Path) -> None:
    entries = json.loads(code_quality.text(diagnosis, {"CI_PROJECT_DIR": str(script.parent)}))
    problems = [finding for finding in diagnosis.findings if not finding.informational]
    assert [entry["check_name"] for entry in entries] == [f"perfwrap/{finding.rule}" for finding in problems]
    for entry in entries:
        assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
        assert entry["severity"] in SEVERITIES
        assert not entry["location"]["path"].startswith("./")
        assert isinstance(entry["location"]["lines"]["begin"], int)
    assert entries[0]["location"] == {"path": "train.py", "lines": {"begin": 3}}
    assert "Fix: " in entries[0]["description"]


def test_two_findings_of_a_rule_in_one_function_have_different_fingerprints(diagnosis: Diagnosis) -> None:
    twice = replace(diagnosis, findings=diagnosis.findings[:1] * 2)
    entries = code_quality.entries(twice)
    assert len({entry["fingerprint"] for entry in entries}) == 2


def test_without_problems_the_report_is_an_empty_list(diagnosis: Diagnosis) -> None:
    assert code_quality.text(replace(diagnosis, findings=())) == "[]\n"

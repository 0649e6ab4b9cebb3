"""SARIF: valid, at the right lines, and with the rules' own documentation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from perfwrap.diagnosis.model import Diagnosis
from perfwrap.reports.ci import sarif
from perfwrap.rules import RULES
from perfwrap.rules.model import Finding, Location, Option, rule_id


def only_run(diagnosis: Diagnosis, root: str = "") -> dict[str, Any]:
    """Return the one run of the document, read back from its text."""
    variables = {"GITHUB_WORKSPACE": root} if root else {}
    document = json.loads(sarif.text(diagnosis, variables))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    return dict(run)


def finding(rule: str, location: Location | None) -> Finding:
    """A finding of a rule at a place."""
    return Finding(
        "It is slow.", 0.3, (), (Option("Make it fast.", (0.7, 0.8)),), location=location, rule=rule
    )


def test_each_finding_is_a_result_at_its_line_with_its_rule(diagnosis: Diagnosis, script: Path) -> None:
    run = only_run(diagnosis, str(script.parent))
    assert [result["ruleId"] for result in run["results"]] == [each.rule for each in diagnosis.findings]
    first, second = run["results"][:2]
    place = first["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "train.py", "uriBaseId": "SRCROOT"},
        "region": {"startLine": 3},
    }
    assert second["locations"][0]["physicalLocation"]["region"]["endLine"] == 11
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"] == f"file://{script.parent}/"
    for result in run["results"]:
        rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert "When it is wrong" in rule["help"]["text"]


@pytest.mark.parametrize("rule", [rule_id(rule) for rule in RULES])
def test_every_rule_has_a_help_text(diagnosis: Diagnosis, rule: str) -> None:
    run = only_run(replace(diagnosis, findings=(finding(rule, None),)))
    (shown,) = run["tool"]["driver"]["rules"]
    assert (shown["id"], len(shown["properties"]["tags"])) == (rule, 3)
    assert all(shown[key]["text"] for key in ("shortDescription", "fullDescription", "help"))


def test_the_document_is_valid(diagnosis: Diagnosis, script: Path) -> None:
    valid = pytest.importorskip("sarif_pydantic", reason="needs sarif-pydantic").Sarif.model_validate_json
    whole = finding("slow_start", None)
    cell = finding("slow_start", Location("/home/me/a b.ipynb, cell [3]", 2, "train"))
    many = replace(diagnosis, findings=(*diagnosis.findings, whole, cell))
    read = valid(sarif.text(many, {"GITHUB_WORKSPACE": str(script.parent)}))
    assert len(read.runs[0].results) == len(many.findings)


def test_the_line_of_a_notebooks_cell_is_not_a_line_of_its_file(diagnosis: Diagnosis) -> None:
    cell = finding("data_loader_single_process", Location("/home/me/a.ipynb, cell [3]", 2, "train"))
    ((place,),) = (
        result["locations"] for result in only_run(replace(diagnosis, findings=(cell,)))["results"]
    )
    assert place["physicalLocation"] == {"artifactLocation": {"uri": "file:///home/me/a.ipynb"}}
    assert place["logicalLocations"] == [{"name": "cell [3], line 2", "kind": "cell"}]


def test_a_finding_without_a_line_is_at_the_program_and_odd_names_are_quoted(diagnosis: Diagnosis) -> None:
    whole = finding("slow_start", None)
    odd = finding("slow_start", Location("/w/a b/ü:1.py", 1))
    run = {"command": ["python", "train.py"], "cwd": "/w"}
    results = only_run(replace(diagnosis, findings=(whole, odd), run=run), "/w")["results"]
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results]
    assert places == ["train.py", "a%20b/%C3%BC%3A1.py"]
    nameless = only_run(replace(diagnosis, findings=(whole,), run={"command": ["python", "-m", "x"]}))
    assert nameless["results"][0]["locations"] == []


def test_a_fingerprint_does_not_depend_on_the_line_or_the_share(diagnosis: Diagnosis) -> None:
    first, moved, other = (
        finding("slow_start", Location("train.py", 1, "main")),
        replace(finding("slow_start", Location("train.py", 9, "main")), share=0.5),
        finding("slow_start", Location("train.py", 1, "setup")),
    )
    results = only_run(replace(diagnosis, findings=(first, moved, other)))["results"]
    prints = [result["partialFingerprints"]["perfwrapFinding/v1"] for result in results]
    assert prints[0] == prints[1] != prints[2]


def test_what_was_not_checked_and_the_verdict_are_messages(diagnosis: Diagnosis) -> None:
    (invocation,) = only_run(diagnosis)["invocations"]
    texts = [each["message"]["text"] for each in invocation["toolExecutionNotifications"]]
    assert texts[0] == diagnosis.verdict.sentence
    unchecked = [each.rule for each in diagnosis.outcomes if each.state == "not checked"]
    assert unchecked
    assert all(any(text.startswith(f"{rule}: not checked. ") for text in texts) for rule in unchecked)

"""The comparison for machines: Markdown, JSON and JUnit's XML."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator
from perfwrap.comparison.comparing import Outcome
from perfwrap.comparison.judgement import Judgement, State
from perfwrap.comparison.obstacles import ALLOWABLE
from perfwrap.reports import comparison_json, comparison_markdown, junit
from perfwrap.reports.json import dumped
from perfwrap.rules.model import State as Outcomes

from tests.wrapper.reports.terminal.test_comparison import COMPARED, REFUSED


def test_markdown_looks_as_the_sample_shows(compare_sample: Callable[[str, str], None]) -> None:
    judged = comparison_markdown.text(COMPARED, Judgement("ok", "A step takes 41 % less."))
    compare_sample("comparison.md", judged)


def test_json_holds_the_figures_and_what_they_come_to() -> None:
    document = json.loads(dumped(comparison_json.document([COMPARED, REFUSED])))
    first, second = document["comparisons"]
    assert document["format"] == comparison_json.FORMAT
    assert first["outcome"] == "faster"
    assert first["typical_step"]["ratio"] == 0.5948
    assert first["typical_step"]["low"] < 0.5948 < first["typical_step"]["high"]
    assert second["outcome"] == "not comparable"
    assert [obstacle["kind"] for obstacle in second["obstacles"]] == ["steps", "gpu"]


SCHEMA = json.loads(comparison_json.SCHEMA.read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)


def problems(document: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document)]


def test_the_schema_is_one_and_is_beside_its_documentation(repository: Path) -> None:
    Draft202012Validator.check_schema(SCHEMA)
    beside = repository / "docs" / "comparison.schema.json"
    assert json.loads(beside.read_text(encoding="utf-8")) == SCHEMA
    text = (repository / "docs" / "comparing.md").read_text(encoding="utf-8")
    keys = {*SCHEMA["properties"], *(key for one in SCHEMA["$defs"].values() for key in one["properties"])}
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_what_is_printed_follows_the_schema() -> None:
    both = json.loads(dumped(comparison_json.document([COMPARED, REFUSED])))
    judged = json.loads(dumped(comparison_json.document([COMPARED], Judgement("ok", "Fine."))))
    few = json.loads(dumped(comparison_json.document([replace(COMPARED, typical=None, whole=None)])))
    assert [problems(document) for document in (both, judged, few)] == [[], [], []]


def test_the_schema_knows_every_word_of_a_comparison() -> None:
    parts = SCHEMA["$defs"]
    assert set(parts["comparison"]["properties"]["outcome"]["enum"]) == set(get_args(Outcome))
    assert set(SCHEMA["properties"]["check"]["properties"]["state"]["enum"]) == set(get_args(State))
    assert set(parts["obstacle"]["properties"]["kind"]["enum"]) == {"steps", *ALLOWABLE}
    why = parts["comparison"]["properties"]["findings"]["items"]["properties"]["why"]["enum"]
    assert set(why) == {"", "unknown", *get_args(Outcomes)}


def test_the_schema_sees_what_is_wrong() -> None:
    document = json.loads(dumped(comparison_json.document([COMPARED, REFUSED], Judgement("ok", "Fine."))))
    document["comparisons"][0]["typical_step"]["ratio"] = "much"
    found = "\n".join(problems(document))
    assert "$.comparisons: " in found  # a check is of one run
    assert "$.comparisons[0].typical_step.ratio: 'much'" in found


@pytest.mark.parametrize(
    ("state", "strict", "element"),
    [
        ("ok", False, None),
        ("regression", False, "failure"),
        ("not comparable", False, "error"),
        ("too noisy", False, "skipped"),
        ("too noisy", True, "failure"),
    ],
)
def test_junit_counts_what_it_holds(state: State, strict: bool, element: str | None) -> None:
    text = junit.text(COMPARED, Judgement(state, "Because <of> & \x1b."), strict)
    root = ElementTree.fromstring(text)
    case = root.find("./testsuite/testcase")
    assert case is not None
    found = [child.tag for child in case if child.tag != "system-out"]
    assert found == ([element] if element else [])
    counted = {key: root.attrib[key] for key in ("failures", "errors", "skipped") if root.attrib[key] != "0"}
    assert list(counted) == (
        [{"failure": "failures", "error": "errors"}.get(element, element)] if element else []
    )
    assert "Because <of> &" in (case.findtext("system-out") or "")

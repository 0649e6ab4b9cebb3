"""The comparison for machines: Markdown, JSON and JUnit's XML."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from perfwrap.compare.judgement import Judgement, State
from perfwrap.reports import comparison_json, comparison_markdown, junit
from perfwrap.reports.json import dumped

from tests.wrapper.reports.test_comparison import COMPARED, REFUSED

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "reports"


def test_markdown_looks_as_the_sample_shows() -> None:
    judged = comparison_markdown.text(COMPARED, Judgement("ok", "A step takes 41 % less."))
    assert judged == (SAMPLES / "comparison.md").read_text(encoding="utf-8")


def test_json_holds_the_figures_and_what_they_come_to() -> None:
    document = json.loads(dumped(comparison_json.document([COMPARED, REFUSED])))
    first, second = document["comparisons"]
    assert document["format"] == comparison_json.FORMAT
    assert first["outcome"] == "faster"
    assert first["typical_step"]["ratio"] == 0.5948
    assert first["typical_step"]["low"] < 0.5948 < first["typical_step"]["high"]
    assert second["outcome"] == "not comparable"
    assert [obstacle["kind"] for obstacle in second["obstacles"]] == ["steps", "gpu"]


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

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from perfwrap.diagnosis.model import Diagnosis, Verdict
from perfwrap.reports import markdown
from perfwrap.reports.markdown_text import code, escaped

FOLDER = Path("/runs/20260101-120000-train")


def test_the_report_looks_as_the_sample_shows(
    diagnosis: Diagnosis, compare_sample: Callable[[str, str], None]
) -> None:
    compare_sample("report.md", markdown.text(diagnosis, FOLDER))


def test_an_abstention_is_a_report_too() -> None:
    text = markdown.text(Diagnosis(Verdict("unknown", None, "No verdict: too few steps.", "none")), FOLDER)
    assert "**No verdict: too few steps.**" in text


def test_text_of_the_program_formats_nothing(diagnosis: Diagnosis) -> None:
    evil = replace(diagnosis, warnings=("<script> [x](http://y) `a` | *b*\n# c",))
    text = markdown.text(evil, FOLDER)
    assert "<script>" not in text
    assert "[x](" not in text
    assert "\n# c" not in text


@given(st.text())
def test_code_keeps_its_backticks_and_stays_one_line(text: str) -> None:
    shown = code(text)
    assert "\n" not in shown
    fence = shown[: len(shown) - len(shown.lstrip("`"))]
    assert shown.endswith(fence)
    assert fence not in shown[len(fence) : -len(fence)]


@given(st.text(alphabet="<>[]*_`|#"))
def test_signs_of_markdown_are_all_escaped(text: str) -> None:
    assert escaped(text) == "".join("\\" + sign for sign in text)

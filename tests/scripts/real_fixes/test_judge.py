"""A finding names the lines of a real fix, a range or function around them, or not."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "scripts" / "real_fixes"
SOURCE = "def loss(rows):\n    total = 0\n    for row in rows:\n        total += row\n    return total\n"


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("judge")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "loss.py").write_text(SOURCE)
    return tmp_path


def finding(
    checkout: Path, line: int, until: int | None = None, evidence: str = "", saving: float = 0.5
) -> dict[str, Any]:
    place = {"file": str(checkout / "loss.py"), "line": line, "until_line": until}
    return {
        "location": place,
        "evidence": [evidence],
        "advice": None,
        "saving": {"low": saving, "high": saving},
    }


def test_the_first_finding_counts_before_the_others(judge: ModuleType, checkout: Path) -> None:
    guilty = (judge.Guilty.parse("loss.py:3-4"),)
    there, elsewhere = finding(checkout, 4), finding(checkout, 1)
    assert judge.judge([there, elsewhere], guilty, checkout) == "first"
    assert judge.judge([elsewhere, there], guilty, checkout) == "named"
    assert judge.judge([elsewhere], guilty, checkout) == "nothing"
    assert judge.judge([], guilty, checkout) == "nothing"


@pytest.mark.parametrize(
    ("line", "until", "evidence", "result"),
    [
        (1, None, "mostly at loss.py:3, by py-spy", "named"),
        (1, None, "mostly at loss.py:5, by py-spy", "nothing"),
        (1, None, "60 % in loss at loss.py", "around"),
        (2, 5, "", "around"),
        (5, 3, "", "around"),
        (3, 4, "", "first"),
    ],
)
def test_texts_and_ranges_are_compared_with_the_guilty_lines(
    judge: ModuleType, checkout: Path, line: int, until: int | None, evidence: str, result: str
) -> None:
    guilty = (judge.Guilty.parse("loss.py:3-4"),)
    assert judge.judge([finding(checkout, line, until, evidence)], guilty, checkout) == result


def test_a_promise_is_that_of_the_first_finding_at_the_lines(judge: ModuleType, checkout: Path) -> None:
    guilty = (judge.Guilty.parse("loss.py:3"),)
    findings = [finding(checkout, 1, saving=0.2), finding(checkout, 3, saving=0.75)]
    assert judge.promised(findings, guilty, checkout) == (0.25, 0.25)
    assert judge.promised(findings[:1], guilty, checkout) is None


def test_every_pair_has_a_driver_and_every_driver_a_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    pairs = importlib.import_module("real_fixes").read_pairs()
    assert len(pairs) >= 25
    assert {pair.driver for pair in pairs} == set((FOLDER / "drivers").glob("*.py"))

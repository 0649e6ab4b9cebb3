"""A diagnosis of a public program is right, partly right, misleading, or no answer, by the rules of scoring.py."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "scripts" / "real_programs"


@pytest.fixture
def scoring(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("scoring")


def truth(scoring: ModuleType, **phases: float) -> Any:
    shares = {"forward": 0.4, "backward": 0.4, "data": 0.1, "imports": 0.1, **phases}
    return scoring.Truth(10.0, 500, shares, {"model.py:7": 0.4, "train.py:20": 0.9})


def finding(rule: str, share: float, file: str = "", line: int = 0) -> dict[str, Any]:
    return {"rule": rule, "share": share, "location": {"file": file, "line": line} if file else None}


def diagnosis(verdict: str, *findings: dict[str, Any], **account: float) -> dict[str, Any]:
    return {"verdict": {"id": verdict}, "findings": list(findings), "account": account}


@pytest.mark.parametrize(
    ("verdict", "findings", "result"),
    [
        ("compute-bound", [finding("compute_bound", 0.9, "/w/model.py", 7)], "right"),
        ("compute-bound", [finding("compute_bound", 0.9, "/w/model.py", 8)], "partly"),
        ("compute-bound", [finding("slow_optimizer", 0.02, "/w/train.py", 20)], "partly"),
        ("healthy", [finding("compute_bound", 0.9, "/w/model.py", 7)], "partly"),
        ("unknown", [], "abstained"),
        ("sync-bound", [], "misleading"),
        ("data-bound", [finding("compute_bound", 0.9, "/w/model.py", 7)], "misleading"),
        ("compute-bound", [finding("data_loader_wait", 0.5, "/w/train.py", 20)], "misleading"),
    ],
)
def test_a_diagnosis_has_the_score_that_the_expected_answer_gives(
    scoring: ModuleType, verdict: str, findings: list[dict[str, Any]], result: str
) -> None:
    expected = scoring.Expected(("compute-bound",), ("compute_bound",), misleading=("data-bound",))
    assert scoring.score(diagnosis(verdict, *findings), expected, truth(scoring)).score == result


def test_a_part_of_the_account_that_the_truth_does_not_have_is_false(scoring: ModuleType) -> None:
    expected = scoring.Expected(("compute-bound",), ("none",))
    claimed = diagnosis("compute-bound", validation=0.3)
    assert scoring.score(claimed, expected, truth(scoring)).score == "misleading"
    assert scoring.score(claimed, expected, truth(scoring, validation=0.2)).score == "right"


def test_small_findings_are_right_where_none_is_expected(scoring: ModuleType) -> None:
    expected = scoring.Expected(("healthy",), ("none",))
    small, large = (diagnosis("healthy", finding("python_overhead", share)) for share in (0.09, 0.11))
    assert scoring.score(small, expected, truth(scoring, other=0.1)).score == "right"
    assert scoring.score(large, expected, truth(scoring, other=0.1)).score == "partly"


def test_every_program_of_the_list_has_a_truth_and_every_third_is_held_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    module = importlib.import_module("real_programs")
    programs = module.read_list(FOLDER / "programs.toml")
    assert len(programs) >= 60
    for program in programs:
        is_held_out = program.number % 3 == 0 or program.number > module.LAST_TUNED
        assert program.held_out == is_held_out, program.script.name
        assert program.expected is not None, program.script.name
        assert (FOLDER / "truth" / f"{program.key}.json").is_file(), program.script.name

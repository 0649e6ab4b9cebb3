from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from perfwrap.comparison.comparing import Comparison
from perfwrap.comparison.differences import ConditionChange, FindingChange, PartChange
from perfwrap.comparison.noise import Change
from perfwrap.comparison.obstacles import Obstacle
from perfwrap.reports.terminal import comparison as drawing
from perfwrap.reports.terminal.page import Page

MS = 1e6


def document(verdict: str, median_ms: float) -> dict[str, Any]:
    median = median_ms * MS
    return {
        "verdict": {"id": verdict},
        "run": {"command": ["python", "train.py", "--workers", "0"]},
        "steps": {
            "steady": 1190,
            "median_ns": median,
            "p99_ns": 1.4 * median,
            "samples_per_s": 64e9 / median,
        },
    }


SIDES = [[("before", document("data-bound", 15.3))], [("after", document("healthy", 9.1))]]
COMPARED = Comparison(
    before_runs=("before",),
    after_runs=("after",),
    typical=Change(15.3 * MS, 9.1 * MS, 0.034),
    whole=Change(15.9 * MS, 9.4 * MS, 0.051),
    obstacles=(),
    allowed=(Obstacle("torch", "The version of PyTorch differs: 2.12.0 and 2.13.0."),),
    cautions=("The runs were recorded by different versions of perfwrap.",),
    parts=(PartChange("data", 7.0 * MS, 0.6 * MS, True), PartChange("forward", 3.0 * MS, 3.1 * MS, False)),
    findings=(
        FindingChange("data_loader_single_process", 0.44, None, "clear"),
        FindingChange("python_overhead", 0.03, 0.06),
        FindingChange("gc_pause", None, 0.05, "not checked"),
        FindingChange("slow_steps", 0.02, None, "not checked"),
    ),
    conditions=(
        ConditionChange("command", "python train.py --workers 0", "python train.py --workers 4"),
        ConditionChange("env/OMP_NUM_THREADS", None, "1"),
    ),
)
REFUSED = replace(
    COMPARED,
    allowed=(),
    obstacles=(
        Obstacle("steps", "The second run has 12 steady steps; 20 are the least that tell anything."),
        Obstacle("gpu", "The GPU differs: H100 and A100."),
    ),
)


@pytest.fixture
def shown() -> Callable[..., str]:
    def draw(*comparisons: Comparison, width: int = 80, sides: Any = SIDES) -> str:
        page = Page(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), width)
        drawing.draw(sides, comparisons, page)
        return page.text()

    return draw


@pytest.mark.parametrize("width", [80, 120])
def test_a_comparison_looks_as_the_sample_shows(
    shown: Callable[..., str], width: int, compare_sample: Callable[[str, str], None]
) -> None:
    compare_sample(f"comparison-{width}.txt", shown(COMPARED, width=width))


def test_a_refusal_says_why_and_how_to_insist(shown: Callable[..., str]) -> None:
    text = shown(REFUSED)
    assert "No conclusion" in text
    assert "H100 and A100" in text
    assert "15.3 ms" in text
    assert "--allow" not in text  # which would not help
    assert "--allow gpu" in shown(replace(REFUSED, obstacles=REFUSED.obstacles[1:]))


def test_several_comparisons_are_each_printed_under_their_names(shown: Callable[..., str]) -> None:
    assert shown(COMPARED, replace(COMPARED, after_runs=("third",))).count("compared with before") == 2


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(shown: Callable[..., str], width: int) -> None:
    long = replace(COMPARED, conditions=(ConditionChange("env/A", "x" * 200, "y " * 100),))
    assert max(len(line) for line in shown(long, REFUSED, width=width).splitlines()) <= width


@pytest.mark.parametrize(
    ("before", "after", "reported"),
    [(0.0, None, "gone"), (None, 0.0, "new"), (0.0, 0.0, "in both"), (0.4, None, "gone, was 40 %")],
)
def test_a_finding_that_claims_no_time_is_not_reported_as_nothing(
    before: float | None, after: float | None, reported: str
) -> None:
    assert (
        drawing.finding_words(FindingChange("phase_balance", before, after, "clear"))
        == f"phase_balance: {reported}"
    )


def test_many_settings_are_counted_not_listed(shown: Callable[..., str]) -> None:
    many = tuple(ConditionChange(f"env/{number}", "1", "2") for number in range(50))
    assert "and 30 more" in shown(replace(COMPARED, conditions=many))


def test_several_runs_of_a_side_are_shown_together(shown: Callable[..., str]) -> None:
    first = [(f"before-{number}", document("data-bound", 15.0 + number)) for number in range(3)]
    second = [
        (f"after-{number}", document(verdict, 9.0)) for number, verdict in enumerate(["healthy", "unknown"])
    ]
    several = replace(
        COMPARED, before_runs=tuple(name for name, _ in first), after_runs=tuple(name for name, _ in second)
    )
    lines = shown(several, sides=[first, second]).splitlines()
    rows = {line[:14].strip(): line[14:].split() for line in lines}
    assert lines[0].startswith("A  before-0, before-1, before-2  python")
    assert lines[1].startswith("B  after-0, after-1  python")
    assert rows["runs"] == ["3", "2"]
    assert rows["verdict"] == ["data-bound", "several"]
    assert rows["steady steps"] == ["3,570", "2,380"]
    assert rows["median step"] == ["16", "ms", "9", "ms"]

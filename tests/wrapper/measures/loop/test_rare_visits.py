from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from perfwrap.measures.loop import rare_visits
from perfwrap.measures.loop.rare_visits import visits_of_function

MAIN = "main (/w/train.py:40)"
PLOT = f"{MAIN};plot (/w/plots.py:7);savefig (/lib/python3.11/site-packages/matplotlib/pyplot.py:9)"
STEP_NS = 1_000_000
STEPS = 1_000


class Evidence:
    """Evidence of a loop of STEPS steps, whose training loop is in ``main``."""

    def get(self, measure: Any, *_: object) -> Any:
        return (
            SimpleNamespace(total_ns=STEPS * STEP_NS)
            if "account" in measure.__name__
            else {("/w/train.py", "main")}
        )


def visits(
    monkeypatch: pytest.MonkeyPatch, inside: list[bool], file: str = "/w/plots.py", function: str = "plot"
) -> rare_visits.RareVisits | None:
    rows = pl.DataFrame({"stack": [PLOT if here else MAIN for here in inside]})
    monkeypatch.setattr(rare_visits, "_loop_samples", lambda *_: rows)
    monkeypatch.setattr(rare_visits, "mean_step_ns", lambda *_: STEP_NS)
    evidence: Any = Evidence()
    trainer: Any = None
    return visits_of_function(evidence, trainer, file, function)


def test_long_visits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = visits(monkeypatch, ([False] * 15 + [True] * 5) * 10)
    assert found is not None
    assert (found.count, found.every_steps) == (10, 100)
    assert found.each_ns == pytest.approx(25 * STEP_NS)


@pytest.mark.parametrize(
    "inside",
    [
        [False, True, False, False, True, True, False, False] * 20,
        [False] * 100 + [True] * 9,
        ([False] * 3 + [True] * 5) * 400,
        [True] * 100,
    ],
    ids=["spread over all samples", "too few samples", "once in each step or two", "always"],
)
def test_code_that_is_not_known_to_be_rare_has_no_visits(
    monkeypatch: pytest.MonkeyPatch, inside: list[bool]
) -> None:
    assert visits(monkeypatch, inside) is None


def test_the_function_with_the_training_loop_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert visits(monkeypatch, [True] * 100, "/w/train.py", "main") is None


def test_another_function_of_the_same_name_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert visits(monkeypatch, ([False] * 15 + [True] * 5) * 10, "/w/other.py") is None

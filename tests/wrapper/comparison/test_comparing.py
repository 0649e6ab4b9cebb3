from __future__ import annotations

from typing import Any

import pytest
from perfwrap.comparison.comparing import Comparison, compare
from perfwrap.comparison.judgement import judge


def held(before: dict[str, Any], after: dict[str, Any], *allow: str) -> Comparison:
    return compare([("a", before)], [("b", after)], allow)


def test_a_run_with_slower_batches_is_slower_and_the_account_says_where(recorded_document: Any) -> None:
    found = held(recorded_document(), recorded_document(step_ms=24, data_ms=9, seed=1))
    assert found.outcome == "slower"
    assert found.sentence.startswith("Slower: a step takes 2")
    assert found.obstacles == ()
    (data,) = [part for part in found.parts if part.is_real]
    assert data.part == "data"
    assert data.after_ns - data.before_ns == pytest.approx(4e6, rel=0.1)


def test_a_run_without_the_waits_is_faster_and_its_finding_is_gone(recorded_document: Any) -> None:
    found = held(recorded_document(), recorded_document(step_ms=15.05, data_ms=0.05, seed=1))
    assert found.outcome == "faster"
    (change,) = [change for change in found.findings if change.rule == "data_loader_single_process"]
    assert change.before == pytest.approx(0.25, abs=0.02)
    assert (change.after, change.why) == (None, "clear")


def test_equal_runs_differ_in_nothing(recorded_document: Any) -> None:
    found = held(recorded_document(), recorded_document(seed=1))
    assert found.outcome == "same"
    assert found.conditions == ()
    assert [part for part in found.parts if part.is_real] == []


def test_settings_versions_and_the_command_are_reported_where_they_differ(recorded_document: Any) -> None:
    other = recorded_document(
        command=("python", "train.py", "--workers", "2"), seed=1, **{"loader/1/num_workers": 2}
    )
    changes = {
        change.key: (change.before, change.after) for change in held(recorded_document(), other).conditions
    }
    assert changes["loader/1/num_workers"] == ("0", "2")
    assert changes["command"] == ("python train.py", "python train.py --workers 2")


def test_runs_that_are_not_comparable_get_no_conclusion_but_their_numbers(recorded_document: Any) -> None:
    found = held(recorded_document(), recorded_document(step_ms=40, batch=64, torch="2.0.0"))
    assert found.outcome == "not comparable"
    assert {obstacle.kind for obstacle in found.obstacles} == {"batch", "torch"}
    assert found.typical is not None
    assert found.typical.ratio == pytest.approx(2.0, rel=0.05)


def test_what_is_allowed_is_reported_and_concluded(recorded_document: Any) -> None:
    found = held(recorded_document(), recorded_document(step_ms=40, torch="2.0.0"), "torch")
    assert found.outcome == "slower"
    assert [obstacle.kind for obstacle in found.allowed] == ["torch"]


def test_too_few_steps_are_an_obstacle_that_stays(recorded_document: Any) -> None:
    found = held(recorded_document(), recorded_document(steps=12), "steps")
    assert found.outcome == "not comparable"
    assert [obstacle.kind for obstacle in found.obstacles] == ["steps"]


def test_runs_without_any_step_are_not_comparable(recorded_document: Any) -> None:
    found = held(recorded_document(steps=0), recorded_document())
    assert found.outcome == "not comparable"
    assert found.typical is None


@pytest.mark.parametrize(
    ("step_ms", "limit", "state"),
    [(20.0, 0.05, "ok"), (24.0, 0.05, "regression"), (24.0, 0.5, "ok"), (15.0, 0.05, "ok")],
)
def test_a_check_fails_only_beyond_its_limit(
    recorded_document: Any, step_ms: float, limit: float, state: str
) -> None:
    found = held(recorded_document(), recorded_document(step_ms=step_ms, data_ms=step_ms - 15, seed=1))
    assert judge(found, limit).state == state


def test_a_check_says_when_it_could_not_have_seen_a_regression(recorded_document: Any) -> None:
    found = held(recorded_document(spread=0.2, steps=40), recorded_document(spread=0.2, steps=40, seed=5))
    judgement = judge(found, 0.02)
    assert judgement.state == "too noisy"
    assert "would be hidden by noise" in judgement.sentence


def test_a_check_of_runs_that_are_not_comparable_says_why(recorded_document: Any) -> None:
    judgement = judge(held(recorded_document(), recorded_document(batch=64)), 0.05)
    assert judgement.state == "not comparable"
    assert "32 and 64" in judgement.sentence

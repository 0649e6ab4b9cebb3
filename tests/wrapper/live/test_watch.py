from __future__ import annotations

from typing import Any

import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.live import watch as watching
from perfwrap.live.live_run import MAX_OF_ONE
from perfwrap.live.watch import LIVE_RULES, Watch
from perfwrap.rules.model import rule_id


def ended(run: Any, steps: int) -> Watch:
    journal = run.journal(rank=0)
    for _ in range(steps):
        journal.step()
    journal.write()
    run.folder.write_manifest({"command": ["python", "train.py"], "exit": {"code": 0}})
    watch = Watch(run.folder)
    watch.step()
    assert watch.over
    return watch


def test_a_run_that_has_ended_is_shown_as_in_its_report(run: Any) -> None:
    watch = ended(run, MAX_OF_ONE)
    watch.conclude()
    scene, report = watch.scene(), diagnose(run.read())
    assert scene.view.recent_steps is None
    assert scene.view.progress.steps == report.steps.count == MAX_OF_ONE
    assert scene.view.median_ns == report.steps.median_ns
    assert scene.view.account == report.account
    assert scene.verdict == report.verdict


def test_a_very_long_run_that_has_ended_is_shown_by_its_last_part(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "MAX_TO_CONCLUDE", 1000)
    watch = ended(run, MAX_OF_ONE)
    watch.conclude()
    scene = watch.scene()
    assert scene.view.recent_steps is not None
    assert scene.view.progress.steps == MAX_OF_ONE
    assert scene.verdict is not None


def test_while_a_run_goes_on_no_rule_weighs_anything_against_its_whole() -> None:
    assert "slow_start" not in {rule_id(rule) for rule in LIVE_RULES}
    assert len(LIVE_RULES) > 10

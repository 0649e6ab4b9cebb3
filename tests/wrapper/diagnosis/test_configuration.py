"""Rules and thresholds that a user sets: from the nearest file, options first, and clear messages for errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from perfwrap.diagnosis.configuration import Choice, choose
from perfwrap.errors import PerfwrapError
from perfwrap.rules import RULES
from perfwrap.rules.loop import gc_pause
from perfwrap.rules.model import rule_id
from perfwrap.rules.thresholds import limits_of, thresholds_of


def configured(folder: Path, text: str, name: str = "perfwrap.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


def test_without_a_file_all_rules_are_asked_by_their_own_thresholds(tmp_path: Path) -> None:
    assert choose(tmp_path) == Choice({}, {})


def test_the_nearest_file_counts(tmp_path: Path) -> None:
    configured(tmp_path, 'ignore = ["slow_start"]')
    inner = configured(tmp_path / "a", 'ignore = ["gc_pause"]')
    deeper = inner / "b" / "c"
    deeper.mkdir(parents=True)
    assert choose(deeper).skipped == {"gc_pause": "ignored by perfwrap.toml"}


def test_a_project_file_counts_where_it_speaks_of_perfwrap(tmp_path: Path) -> None:
    configured(tmp_path, '[tool.perfwrap]\nignore = ["slow_start"]', "pyproject.toml")
    inner = configured(tmp_path / "a", "[tool.ruff]\nline-length = 100", "pyproject.toml")
    assert choose(inner).skipped == {"slow_start": "ignored by pyproject.toml"}


def test_only_the_rules_that_are_wanted_are_asked(tmp_path: Path) -> None:
    configured(tmp_path, 'rules = ["gc_pause", "slow_start"]\nignore = ["slow_start"]')
    asked = {rule_id(rule) for rule in RULES} - set(choose(tmp_path).skipped)
    assert asked == {"gc_pause"}


def test_options_go_before_the_file(tmp_path: Path) -> None:
    configured(tmp_path, 'ignore = ["gc_pause"]')
    choice = choose(tmp_path, only=["gc_pause", "slow_start"], ignored=["slow_start"])
    assert set(choice.skipped) == {rule_id(rule) for rule in RULES} - {"gc_pause"}
    assert choice.skipped["slow_start"] == "ignored by --ignore"
    assert choice.skipped["slow_steps"] == "left out by --rules"


def test_thresholds_are_the_rules_own_names(tmp_path: Path) -> None:
    configured(tmp_path, "[thresholds.gc_pause]\nmin_reported_share = 0.5\nfrequent_share = 1")
    choice = choose(tmp_path)
    assert choice.thresholds == {"gc_pause": {"min_reported_share": 0.5, "frequent_share": 1}}
    limits = limits_of([gc_pause], choice.thresholds)["gc_pause"]
    assert limits == gc_pause.Limits(min_reported_share=0.5, frequent_share=1)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ('ignore = ["gc_pauses"]', "no rule 'gc_pauses'", "gc_pause"),
        ("ignore = 'gc_pause'", "list of rule names", "slow_start"),
        ("ignored = []", "unknown key 'ignored'", "ignore"),
        ("thresholds = 3", "in a table with the name of their rule", "[thresholds."),
        ("[thresholds.gc_paus]\nx = 1", "no rule 'gc_paus'", "gc_pause"),
        ("[thresholds.gc_pause]\nreported_share = 1", "no threshold 'reported_share'", "min_reported_share"),
        ("[thresholds.gc_pause]\nmin_reported_share = 20", "at most 1", "0.2"),
        ("[thresholds.gc_pause]\nmin_reported_share = '2 %'", "must be a finite number", ""),
        ("[thresholds.gc_pause]\nmin_reported_share = -1", "must be a finite number", ""),
        ("ignore = [", "cannot be read", "Fix the file"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_the_cure(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    configured(tmp_path, text)
    with pytest.raises(PerfwrapError) as raised:
        choose(tmp_path)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_every_threshold_can_be_set(tmp_path: Path) -> None:
    for rule in RULES:
        names = thresholds_of(rule)
        lines = [f"[thresholds.{rule_id(rule)}]", *(f"{name} = 0.125" for name in names)]
        choice = choose(configured(tmp_path, "\n".join(lines)))
        limits = limits_of(RULES, choice.thresholds)[rule_id(rule)]
        assert limits == rule.Limits(**dict.fromkeys(names, 0.125))

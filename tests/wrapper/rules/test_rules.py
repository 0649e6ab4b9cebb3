from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import perfwrap.rules
import pytest
from perfwrap.diagnosis import diagnose
from perfwrap.measures.missing import NEEDS
from perfwrap.reports.explanation import HEADINGS, sections, summary
from perfwrap.rules import (
    RULES,
    blocking_transfer,
    debug_mode_enabled,
    device_round_trip,
    evaluation_with_grad,
    explicit_synchronize,
    gradient_norm_per_step,
    recompilation,
    slow_optimizer,
    unpinned_transfer,
    zero_grad_memset,
)
from perfwrap.rules.model import Finding, Rule, Severity, rule_id

FOLDER = Path(perfwrap.rules.__file__).parent
NO_RULES = {
    "__init__",
    "copies",
    "gaps",
    "kept",
    "kernel_record",
    "making",
    "model",
    "on_gpu",
    "sampled",
    "spread",
    "thresholds",
}

each_rule = pytest.mark.parametrize("rule", RULES, ids=rule_id)


def test_every_file_of_the_folder_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} - NO_RULES == {rule_id(rule) for rule in RULES}


def test_every_rule_has_a_test_file_of_its_name(repository: Path) -> None:
    tests = {path.stem for path in (repository / "tests" / "wrapper" / "rules").glob("test_*.py")}
    assert {f"test_{rule_id(rule)}" for rule in RULES} <= tests


@each_rule
def test_a_rule_explains_itself_under_the_five_headings(rule: Rule) -> None:
    found = sections(rule)
    assert tuple(found) == HEADINGS
    assert all(found.values())
    assert summary(rule).endswith((".", "end."))


@each_rule
def test_a_rule_needs_only_what_is_known(rule: Rule) -> None:
    assert set(rule.NEEDS) <= set(NEEDS)


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.01, "note"), (0.05, "minor"), (0.1, "major"), (0.2, "critical"), (1, "critical")],
)
def test_severity_follows_the_one_scale(share: float, severity: str) -> None:
    assert Finding("It costs.", share, (0.5, 0.6), (), "Mend it.").severity == severity


def test_what_a_longer_run_dilutes_is_never_worse_than_minor() -> None:
    assert Finding("It costs.", 0.9, (1, 1), (), "Mend it.", of_run=True).severity == "minor"


@pytest.mark.parametrize(
    ("share", "at_least", "severity", "weight"),
    [(0.0, "major", "major", 0.1), (0.3, "major", "critical", 0.3), (0.0, "critical", "critical", 1.0)],
)
def test_what_costs_no_time_but_the_run_has_a_least_severity(
    share: float, at_least: Severity, severity: str, weight: float
) -> None:
    finding = Finding("It leaks.", share, (1 - share, 1 - share), (), "Mend it.", at_least=at_least)
    assert (finding.severity, finding.weight) == (severity, weight)


def test_the_good_end_is_a_note() -> None:
    assert Finding("It is good.", 0.99, (1, 1), (), "Go on.", benign=True).severity == "note"
    assert Finding("It may be.", 0.99, (0.01, 1), (), "Try.", at_most="minor").severity == "minor"


RECORDED_ONLY = (
    slow_optimizer,
    zero_grad_memset,
    gradient_norm_per_step,
    debug_mode_enabled,
    evaluation_with_grad,
    recompilation,
    explicit_synchronize,
    unpinned_transfer,
    blocking_transfer,
    device_round_trip,
)


@pytest.mark.parametrize("rule", RECORDED_ONLY, ids=rule_id)
def test_options_and_lines_are_not_read_out_of_imported_files(gpu_loop: Any, rule: Rule) -> None:
    for _ in range(40):
        gpu_loop.step()
    timeline = replace(gpu_loop.recording.build(), run={"imported": ["trace.json"]})
    outcome = next(outcome for outcome in diagnose(timeline).outcomes if outcome.rule == rule_id(rule))
    assert outcome.state == "not checked"
    assert "cannot be told from imported files" in outcome.why

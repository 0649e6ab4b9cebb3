from __future__ import annotations

from pathlib import Path

import perfwrap.rules
import pytest
from perfwrap.measures.missing import NEEDS
from perfwrap.reports.explanation import HEADINGS, sections, summary
from perfwrap.rules import RULES
from perfwrap.rules.model import Finding, Rule, rule_id

FOLDER = Path(perfwrap.rules.__file__).parent
NO_RULES = {"__init__", "copies", "kernel_record", "making", "model", "on_gpu", "sampled"}

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


def test_the_good_end_is_a_note() -> None:
    assert Finding("It is good.", 0.99, (1, 1), (), "Go on.", benign=True).severity == "note"

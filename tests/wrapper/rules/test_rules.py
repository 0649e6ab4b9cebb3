from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import perfwrap.rules
import pytest
from perfwrap.diagnosis.engine import diagnose
from perfwrap.reports.terminal.explanation import HEADINGS, sections, summary
from perfwrap.rules import RULES, TOPICS
from perfwrap.rules.model import Finding, Option, Rule, Scope, Severity, rule_id
from perfwrap.rules.needs import NEEDS
from perfwrap.rules.priority import BEFORE, priority
from perfwrap.rules.thresholds import thresholds_of

FOLDER = Path(perfwrap.rules.__file__).parent

each_rule = pytest.mark.parametrize("rule", RULES, ids=rule_id)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.__name__.rsplit(".")[-1])
def test_every_rule_of_a_topics_folder_is_listed(topic: ModuleType) -> None:
    files = {path.stem for path in Path(str(topic.__file__)).parent.glob("[!_]*.py")}
    assert files == {rule_id(rule) for rule in topic.RULES}
    assert topic.TITLE


def test_every_rule_has_its_own_place_in_the_order_of_claims() -> None:
    places = [priority(rule_id(rule)) for rule in RULES]
    assert sorted(places) == list(range(len(RULES)))
    assert priority("a_rule_in_no_topic") < min(places)


def test_rules_of_a_topic_claim_in_the_order_in_which_they_are_shown() -> None:
    for topic in TOPICS:
        places = [priority(rule_id(rule)) for rule in topic.RULES if rule_id(rule) not in BEFORE]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("data_loader_single_process", "data_loader_wait"),
        ("gpu_waits_for_data", "host_sync_in_step"),
        ("slow_optimizer", "straggler_rank"),
        ("straggler_rank", "slow_steps"),
        ("python_overhead", "thread_oversubscription"),
        ("swapping", "allocator_retries"),
        ("exposed_transfer", "tensor_cores_unused"),
        ("double_precision", "compute_bound"),
        ("half_precision_on_cpu", "compute_bound"),
    ],
)
def test_a_cause_claims_before_its_symptoms(first: str, second: str) -> None:
    assert priority(first) < priority(second)


def test_every_rule_has_a_test_file_of_its_name(repository: Path) -> None:
    tests = {path.stem for path in (repository / "tests" / "wrapper" / "rules").glob("*/test_*.py")}
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


@each_rule
def test_a_rule_reads_all_its_thresholds_and_can_change_none(rule: Rule) -> None:
    read = set(re.findall(r"(?<![\w.])limits\.(\w+)", inspect.getsource(inspect.getmodule(rule.Limits))))
    assert read == set(thresholds_of(rule))
    for name in read:
        with pytest.raises(AttributeError, match="immutable"):
            setattr(rule.Limits(), name, 0.5)


@pytest.mark.parametrize(
    ("share", "severity"),
    [(0.01, "note"), (0.05, "minor"), (0.1, "major"), (0.2, "critical"), (1, "critical")],
)
def test_severity_follows_the_one_scale(share: float, severity: str) -> None:
    assert (
        Finding(
            "It costs.",
            share,
            (),
            (Option("Mend it.", (0.5, 0.6)),),
        ).severity
        == severity
    )


def test_what_a_longer_run_dilutes_is_never_worse_than_minor() -> None:
    assert (
        Finding(
            "It costs.",
            0.9,
            (),
            (Option("Mend it.", (1, 1)),),
            scope=Scope.RUN,
        ).severity
        == "minor"
    )


@pytest.mark.parametrize(
    ("share", "min_severity", "severity", "weight"),
    [(0.0, "major", "major", 0.1), (0.3, "major", "critical", 0.3), (0.0, "critical", "critical", 1.0)],
)
def test_what_costs_no_time_but_the_run_has_a_least_severity(
    share: float, min_severity: Severity, severity: str, weight: float
) -> None:
    finding = Finding(
        "It leaks.",
        share,
        (),
        (Option("Mend it.", (1 - share, 1 - share)),),
        min_severity=min_severity,
    )
    assert (finding.severity, finding.weight) == (severity, weight)


def test_the_healthy_finding_is_a_note() -> None:
    assert (
        Finding(
            "It is good.",
            0.99,
            (),
            (Option("Go on.", (1, 1)),),
            informational=True,
        ).severity
        == "note"
    )
    assert (
        Finding(
            "It may be.",
            0.99,
            (),
            (Option("Try.", (0.01, 1)),),
            max_severity="minor",
        ).severity
        == "minor"
    )


RECORDED_ONLY = [rule for rule in RULES if {"options", "copies"} & set(rule.NEEDS)]


@pytest.mark.parametrize("rule", RECORDED_ONLY, ids=rule_id)
def test_options_and_lines_are_not_read_out_of_imported_files(gpu_loop: Any, rule: Rule) -> None:
    for _ in range(40):
        gpu_loop.step()
    timeline = replace(gpu_loop.recording.build(), run={"imported": ["trace.json"]})
    outcome = next(outcome for outcome in diagnose(timeline).outcomes if outcome.rule == rule_id(rule))
    assert outcome.state == "not checked"
    assert "not in imported files" in outcome.why

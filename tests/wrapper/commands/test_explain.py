from __future__ import annotations

import pytest
from perfwrap.commands.explain import explain
from perfwrap.errors import PerfwrapError
from perfwrap.rules import RULES
from perfwrap.rules.model import rule_id


@pytest.mark.parametrize("rule", [rule_id(rule) for rule in RULES])
def test_every_rule_can_be_explained(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    explain(rule)
    out, err = capsys.readouterr()
    assert out.startswith(f"{rule}\n")
    assert "How to fix" in out
    assert err == ""


def test_without_a_rule_all_of_them_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    explain()
    out = capsys.readouterr().out
    assert all(rule_id(rule) in out for rule in RULES)


@pytest.mark.parametrize(
    ("wrong", "suggestion"),
    [
        ("gc_pauses", "gc_pause"),
        ("data-loader-wait", "data_loader_wait"),
        ("Slow_Start", "slow_start"),
        ("validation", "validation_share"),
        ("zebra", "List all rules: perfwrap explain"),
    ],
)
def test_a_misspelt_rule_gets_a_suggestion(wrong: str, suggestion: str) -> None:
    with pytest.raises(PerfwrapError) as raised:
        explain(wrong)
    assert wrong in raised.value.message
    assert suggestion in raised.value.hint

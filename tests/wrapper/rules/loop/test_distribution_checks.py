from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.journal_format import FIELD_SEPARATOR, INSTANTS
from perfwrap.measures.account.lines import Line
from perfwrap.measures.account.what_if import best_without
from perfwrap.measures.loop import checked_arguments as measure
from perfwrap.measures.loop.checked_arguments import DistributionChecks
from perfwrap.rules.loop import distribution_checks as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule

MS = 1_000_000
TORCH = "/lib/python3.11/site-packages/torch/distributions"
ACT = "main (/w/train.py:40);act (/w/agent.py:{line})"
MADE = f"{ACT.format(line=18)};Categorical.__init__ ({TORCH}/categorical.py:72);"
CHECKED = {
    "a constructor": f"{MADE}Distribution.__init__ ({TORCH}/distribution.py:68)",
    "on an older Python": f"{MADE}__init__ ({TORCH}/distribution.py:68);check ({TORCH}/constraints.py:380)",
    "a value": f"{ACT.format(line=19)};log_prob ({TORCH}/normal.py:9);_validate_sample ({TORCH}/distribution.py:9)",
}
UNCHECKED = f"{ACT.format(line=18)};Categorical.sample ({TORCH}/categorical.py:130)"


def called(file: str, line: int) -> set[str]:
    """Return what a line calls: line 18 makes the distribution."""
    return {"torch.distributions.Categorical"} if line == 18 else {"m.log_prob"}


@pytest.mark.parametrize("checked", list(CHECKED))
def test_samples_in_checks_are_counted_for_the_line_that_makes_the_distribution(checked: str) -> None:
    stacks = [(CHECKED[checked], 30), (UNCHECKED, 70)]
    found = measure.count_checks(stacks, called)
    assert found is not None
    assert (found.count, found.sampled) == (30, 100)
    assert str(found.where and found.where.line) == ("19" if checked == "a value" else "18")


def test_the_line_that_makes_it_is_named_rather_than_the_one_that_uses_it() -> None:
    found = measure.count_checks([(CHECKED["a value"], 30), (CHECKED["a constructor"], 10)], called)
    assert found is not None
    assert found.where == Line("/w/agent.py", 18, "act")


def test_few_samples_say_nothing() -> None:
    assert measure.count_checks([(CHECKED["a value"], 9), (UNCHECKED, 500)], called) is None


def test_checks_of_libraries_have_no_line() -> None:
    stack = f"run (/lib/python3.11/site-packages/sb3/policy.py:3);__init__ ({TORCH}/distribution.py:68)"
    found = measure.count_checks([(stack, 20)], called)
    assert found is not None
    assert found.where is None


def train(loop: Any) -> None:
    """Write a loop with a sample, so that the rule has call stacks."""
    for _ in range(40):
        loop.compute()
    label = FIELD_SEPARATOR.join(["", "agent.py", "18", "act"])
    loop.journal.record(INSTANTS["STACK"], loop.journal.now - MS, MS, 1, label, 1)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Line | None], None]:
    def put(count: int, where: Line | None) -> None:
        found = DistributionChecks(count, 1_000, where)
        monkeypatch.setattr(rule, "find_distribution_checks", lambda evidence, trainer: found)

    return put


@pytest.mark.parametrize(("device", "least"), [("cpu", 0.75), ("cuda:0", 0.0)])
def test_checks_are_found_at_their_line(
    loop: Any, find: Callable[[Rule], Finding], checks: Any, device: str, least: float
) -> None:
    checks(190, Line("agent.py", 18, "act"))
    loop.journal.fact("model/Net/device", device)
    train(loop)
    finding = find(rule)
    assert finding.title.endswith(
        "checks the arguments of distributions, mostly for the distribution at agent.py:18."
    )
    assert str(finding.location) == "agent.py:18"
    assert finding.saving == pytest.approx((best_without(0.19), 1 - least * 0.19))
    assert finding.advice.startswith(f"Call {rule.EVERYWHERE} at the start.")
    assert finding.options[1].edit == "Pass validate_args=False to the distribution at agent.py:18."
    assert finding.options[1].saving == (finding.saving[0], 1.0)


def test_without_a_line_they_are_switched_off_everywhere(
    loop: Any, find: Callable[[Rule], Finding], checks: Any
) -> None:
    checks(190, None)
    train(loop)
    (option,) = find(rule).options
    assert option.edit == f"Call {rule.EVERYWHERE} at the start."


def test_few_checks_are_clear(loop: Any, ask: Callable[[Rule], Answer], checks: Any) -> None:
    checks(29, None)
    train(loop)
    assert isinstance(ask(rule), Clear)

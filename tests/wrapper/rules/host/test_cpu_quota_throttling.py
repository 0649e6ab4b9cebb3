from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.host import cpu_quota_throttling as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, withheld: float | None, quota: float | None = 2.0, device: str = "cpu") -> None:
    loop.journal.fact("model/Net/device", device)
    for _ in range(40):
        loop.compute()
    loop.cores(usable=2, runnable=2)
    if quota is not None:
        loop.monitor().fact("cpu_quota_cores", quota)
    if withheld is not None:
        loop.sample("cgroup", "throttled_share", withheld)


def test_what_a_quota_withholds_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, 0.3)
    finding = find(rule)
    assert finding.share == pytest.approx(0.3, abs=0.01)
    assert finding.saving == pytest.approx((0.7, 1.0), abs=0.01)
    assert "2.0 cores" in finding.sentence


def test_a_model_on_a_gpu_is_not_slowed_down_by_it(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, 0.3, device="cuda:0")
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize(("withheld", "quota"), [(0.01, 2.0), (None, None)])
def test_a_quota_that_hardly_bites_and_none_are_clear(
    loop: Any, ask: Callable[[Rule], Answer], withheld: float | None, quota: float | None
) -> None:
    write(loop, withheld, quota)
    assert isinstance(ask(rule), Clear)


def test_a_quota_that_was_not_recorded_is_not_checked(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, None)
    assert isinstance(ask(rule), NotChecked)


def test_without_monitors_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    for _ in range(40):
        loop.compute()
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["cpu_quota_throttling"]
    assert outcome.state == "not checked"

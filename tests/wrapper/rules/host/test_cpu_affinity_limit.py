from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.host import cpu_affinity_limit as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


def write(loop: Any, allowed: int = 2, online: int = 16, used: float | None = 2.0, busy: float = 3.0) -> None:
    for _ in range(40):
        loop.compute()
    monitor = loop.monitor()
    for key, value in {"cores_usable": allowed, "cores_affinity": allowed, "cores_online": online}.items():
        monitor.fact(key, value)
    loop.sample("host", "cpu_cores_busy", busy)
    if used is not None:
        loop.sample(f"process/{loop.run.journals[0].path.name.split('-')[1]}", "cpu_cores", used)


def test_a_run_that_uses_its_few_cores_up_is_found(
    make_loop: Callable[..., Any], find: Callable[[Rule], Finding]
) -> None:
    write(make_loop(threads=8))
    finding = find(rule)
    assert finding.share == pytest.approx(0.75, abs=0.01)
    assert "2 of 16 cores" in finding.sentence
    assert "8 cores" in finding.advice


@pytest.mark.parametrize(
    "options",
    [{"allowed": 12, "used": 12.0}, {"used": 1.0}, {"busy": 16.0}],
)
def test_enough_cores_idle_ones_and_a_busy_machine_are_clear(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer], options: dict[str, Any]
) -> None:
    write(make_loop(threads=8), **options)
    assert isinstance(ask(rule), Clear)


def test_a_run_that_wants_no_more_is_clear(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    write(make_loop(threads=2))
    assert isinstance(ask(rule), Clear)


def test_what_was_not_sampled_is_not_checked(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    write(make_loop(threads=8), used=None)
    assert isinstance(ask(rule), NotChecked)

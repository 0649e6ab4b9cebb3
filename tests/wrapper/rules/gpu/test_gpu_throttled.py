from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.gpu import gpu_throttled as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

MHZ = 1_000_000


@pytest.fixture
def loop_on_gpu(make_loop: Callable[..., Any]) -> Any:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    loop.monitor().fact("gpu/0/name", "NVIDIA GeForce RTX 3090")
    loop.monitor().fact("gpu/0/sm_clock_max_hertz", 2000 * MHZ)
    loop.sample("gpu/0", "utilization_share", 0.9)
    return loop


def test_heat_is_found_with_its_reason_and_what_the_clocks_lose(
    loop_on_gpu: Any, find: Callable[[Rule], Finding]
) -> None:
    loop_on_gpu.sample("gpu/0", "throttled_share", 1.0)
    loop_on_gpu.sample("gpu/0", "throttle/heat", 1.0)
    loop_on_gpu.sample("gpu/0", "sm_clock_hertz", 1500 * MHZ)
    loop_on_gpu.sample("gpu/0", "temperature_celsius", 87)
    finding = find(rule)
    assert "because of heat (driver)" in finding.title
    assert finding.health
    assert finding.verdict == "throttled"
    assert finding.share == pytest.approx(0.25)
    assert any("87 °C, above 83" in words for words in finding.evidence)


def test_the_power_limit_alone_is_ordinary(loop_on_gpu: Any, ask: Callable[[Rule], Answer]) -> None:
    loop_on_gpu.sample("gpu/0", "throttled_share", 1.0)
    loop_on_gpu.sample("gpu/0", "throttle/power_cap", 1.0)
    loop_on_gpu.sample("gpu/0", "temperature_celsius", 70)
    assert isinstance(ask(rule), Clear)


def test_a_power_limit_that_was_lowered_is_a_note(loop_on_gpu: Any, find: Callable[[Rule], Finding]) -> None:
    loop_on_gpu.sample("gpu/0", "throttled_share", 1.0)
    loop_on_gpu.sample("gpu/0", "throttle/power_cap", 1.0)
    loop_on_gpu.monitor().fact("gpu/0/power_limit_watts", 200)
    loop_on_gpu.monitor().fact("gpu/0/power_limit_default_watts", 350)
    finding = find(rule)
    assert finding.informational
    assert "Its power limit is 200 W, the default 350 W." in finding.evidence


def test_heat_that_lowers_nothing_yet_is_a_note(loop_on_gpu: Any, find: Callable[[Rule], Finding]) -> None:
    loop_on_gpu.sample("gpu/0", "throttled_share", 0.0)
    loop_on_gpu.sample("gpu/0", "temperature_celsius", 86)
    finding = find(rule)
    assert finding.informational
    assert "86 °C" in finding.title


def test_a_card_that_is_meant_to_be_hotter_is_clear(loop_on_gpu: Any, ask: Callable[[Rule], Answer]) -> None:
    loop_on_gpu.sample("gpu/0", "temperature_celsius", 86)
    loop_on_gpu.monitor().fact("gpu/0/temperature_max_celsius", 90)
    assert isinstance(ask(rule), Clear)


def test_clocks_that_were_chosen_are_clear(loop_on_gpu: Any, ask: Callable[[Rule], Answer]) -> None:
    loop_on_gpu.sample("gpu/0", "throttled_share", 0.0)
    loop_on_gpu.sample("gpu/0", "throttle/application_clocks", 1.0)
    assert isinstance(ask(rule), Clear)


def test_a_gpu_that_reports_neither_is_not_checked(loop_on_gpu: Any, ask: Callable[[Rule], Answer]) -> None:
    assert isinstance(ask(rule), NotChecked)

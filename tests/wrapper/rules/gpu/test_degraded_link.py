from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.gpu import degraded_link as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule


@pytest.fixture
def loop_on_gpu(make_loop: Callable[..., Any]) -> Any:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    for key, value in {"pcie_generation_max": 4, "pcie_width_max": 16, "nvlinks": 12}.items():
        loop.monitor().fact(f"gpu/0/{key}", value)
    loop.sample("gpu/0", "utilization_share", 0.9)
    return loop


def link(loop: Any, generation: float = 4, width: float = 16, nvlinks: float = 12) -> None:
    loop.sample("gpu/0", "pcie_generation", generation)
    loop.sample("gpu/0", "pcie_width", width)
    loop.sample("gpu/0", "nvlinks_active", nvlinks)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"generation": 3}, "PCIe generation: at most 3 of 4."),
        ({"width": 4}, "PCIe lanes: at most 4 of 16."),
        ({"nvlinks": 0}, "active NVLinks: at most 0 of 12."),
    ],
)
def test_a_link_below_its_best_is_found(
    loop_on_gpu: Any, find: Callable[[Rule], Finding], state: dict[str, float], words: str
) -> None:
    link(loop_on_gpu, **state)
    finding = find(rule)
    assert finding.health
    assert finding.evidence == (words,)


def test_a_link_that_only_slept_at_times_is_clear(loop_on_gpu: Any, ask: Callable[[Rule], Answer]) -> None:
    link(loop_on_gpu, generation=1)
    loop_on_gpu.sample("gpu/0", "pcie_generation", 4, times=3)
    assert isinstance(ask(rule), Clear)


def test_packets_that_were_sent_again_are_said(loop_on_gpu: Any, find: Callable[[Rule], Finding]) -> None:
    link(loop_on_gpu)
    loop_on_gpu.sample("gpu/0", "pcie_replays", 250, times=1)
    loop_on_gpu.journal.now += 1_000_000
    loop_on_gpu.sample("gpu/0", "pcie_replays", 1250, times=1)
    assert find(rule).evidence == ("1,000 PCIe packets had to be sent again.",)


def test_a_gpu_that_did_nothing_is_not_checked(
    make_loop: Callable[..., Any], ask: Callable[[Rule], Answer]
) -> None:
    loop = make_loop(**{"model/Net/device": "cuda:0"})
    for _ in range(40):
        loop.compute()
    loop.monitor().fact("gpu/0/pcie_width_max", 16)
    loop.sample("gpu/0", "utilization_share", 0.01)
    link(loop, width=4)
    assert isinstance(ask(rule), NotChecked)


def test_links_that_were_not_sampled_are_not_checked(loop_on_gpu: Any, ask: Callable[[Rule], Answer]) -> None:
    assert isinstance(ask(rule), NotChecked)

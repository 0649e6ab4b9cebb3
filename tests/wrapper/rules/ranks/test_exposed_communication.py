from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule
from perfwrap.rules.ranks import exposed_communication as rule

from tests.wrapper.rules.ranks.test_synchronised_accumulation import spread, train

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def test_collectives_that_nothing_is_computed_beside_are_found(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=60, beside=ALL_REDUCE)
    finding = gpu_loop.find(rule)
    assert finding.share == pytest.approx(0.4, abs=0.01)
    assert finding.verdict == "communication-bound"
    assert "100 collectives took 4 ms, 4 ms of it without overlap" in finding.evidence[0]


def test_hidden_collectives_are_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        start = gpu_loop.start
        gpu_loop.step(kernel=99)
        gpu_loop.recording.work(start, 500, ALL_REDUCE, stream=9, launched=start - 9)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_collectives_it_is_clear(gpu_loop: Any) -> None:
    for _ in range(10):
        gpu_loop.step(kernel=60)
    assert isinstance(gpu_loop.ask(rule), Clear)


def test_without_kernels_it_is_not_checked(gpu_loop: Any) -> None:
    gpu_loop.recording.host(0, 10, "optimizer", "optimizer")
    assert gpu_loop.outcome(rule).state == "not checked"


def test_what_is_between_the_backward_pass_and_the_optimizer_is_said(gpu_loop: Any) -> None:
    recording = gpu_loop.recording
    for number in range(20):
        start = 1_000 * number
        recording.host(start, 100, "backward", "backward")
        recording.host(start + 120, 100, "optimizer", "optimizer")
        for at in range(3):
            recording.work(start + 150 + 100 * at, 100, "gemm", launched=start + 10 + at)
        # 200 of its 300 us come after the last kernel of the backward pass.
        recording.work(start + 350, 300, ALL_REDUCE, stream=9, launched=start + 20)
        recording.work(start + 650, 50, "adam", launched=start + 130)
    finding = gpu_loop.find(rule)
    assert finding.evidence[1].startswith(">99 %") or finding.evidence[1].startswith("100 %")
    assert "between the end of the backward pass and the optimizer" in finding.evidence[1]


@pytest.fixture
def two_hosts(make_loop: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that writes a loop on each of two hosts, by what their exchanges took."""

    def write(
        *exchanges_ms: float | None, hosts: tuple[str, str] = ("here", "there"), steps: int = 40
    ) -> None:
        loop = make_loop(rank=0)
        for rank, exchange_ms in enumerate(exchanges_ms):
            if rank:
                loop.journal = loop.run.journal(pid=101, host=hosts[rank], opened=10**9, rank=rank)
            spread(loop, exchange_ms)
            train(loop, micro=1, steps=steps)

    return write


def test_between_hosts_without_a_gpu_what_ddp_measured_is_found_with_its_line(
    two_hosts: Callable[..., None], find: Callable[[Rule], Finding]
) -> None:
    two_hosts(5, 3)
    finding = find(rule)
    assert finding.share == pytest.approx(3 / 13, abs=0.01)
    assert finding.saving[0] == pytest.approx(10 / 13, abs=0.01)
    assert str(finding.location) == "train.py:9"
    assert finding.verdict == "communication-bound"


def test_waiting_for_a_late_rank_is_not_the_exchange(
    two_hosts: Callable[..., None], ask: Callable[[Rule], Answer]
) -> None:
    two_hosts(5, 0.1)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize("exchange_ms", [3, None])
def test_on_one_machine_the_exchange_may_be_waiting_for_a_turn(
    two_hosts: Callable[..., None], ask: Callable[[Rule], Answer], exchange_ms: float | None
) -> None:
    two_hosts(exchange_ms, exchange_ms, hosts=("here", "here"))
    assert isinstance(ask(rule), NotChecked)


@pytest.mark.parametrize(("exchange_ms", "steps"), [(None, 40), (3, 5)])
def test_between_hosts_it_needs_steps_and_ddp_s_word(
    two_hosts: Callable[..., None], ask: Callable[[Rule], Answer], exchange_ms: float | None, steps: int
) -> None:
    two_hosts(exchange_ms, exchange_ms, steps=steps)
    assert isinstance(ask(rule), NotChecked)

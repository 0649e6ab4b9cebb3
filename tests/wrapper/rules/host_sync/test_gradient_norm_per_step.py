from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.host_sync import gradient_norm_per_step as rule
from perfwrap.rules.model import Answer, Clear, Finding, Rule


def write(loop: Any, reads: int, tensors: int = 40, after_forward: bool = False, on_gpu: int = 0) -> None:
    loop.journal.fact("optimizer/SGD#1/parameters", tensors)
    for _ in range(40):
        loop.span("forward", 4, "Net", 3, 21)
        if not after_forward:
            loop.span("backward", 5, line=23)
        for _ in range(reads):
            loop.python(0.1)
            loop.span("sync", 0.02, "Tensor.item", on_gpu, 30)
        if after_forward:
            loop.span("backward", 5, line=23)
        loop.span("optimizer", 1, "SGD#1", line=24)


def test_a_value_read_for_each_tensor_is_found_with_the_code_between(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, reads=40)
    finding = find(rule)
    assert finding.share == pytest.approx((40 * 0.02 + 39 * 0.1) / 14.8, abs=0.01)
    assert str(finding.location) == "train.py:30"
    assert finding.verdict == "python-bound"
    assert "40 calls" in finding.evidence[0]


def test_on_a_gpu_it_speaks_for_the_syncs(loop: Any, find: Callable[[Rule], Finding]) -> None:
    write(loop, reads=40, on_gpu=1)
    assert find(rule).verdict == "sync-bound"


def test_a_few_losses_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, reads=4)
    assert isinstance(ask(rule), Clear)


def test_fewer_reads_than_half_of_the_tensors_are_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, reads=12, tensors=40)
    assert isinstance(ask(rule), Clear)


def test_many_more_reads_than_tensors_are_something_else(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, reads=100, tensors=22)
    assert isinstance(ask(rule), Clear)


def test_reads_before_the_backward_pass_are_something_else(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, reads=40, after_forward=True)
    assert isinstance(ask(rule), Clear)


def test_without_the_number_of_tensors_nothing_is_guessed(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, reads=40, tensors=0)
    assert isinstance(ask(rule), Clear)


def clip(loop: Any, foreach: object, device: str) -> None:
    loop.journal.fact("model/Net/device", device)
    loop.journal.fact("clip/1/line", "train.py\x1f26\x1fmain")
    loop.journal.fact("clip/1/foreach", foreach)
    for _ in range(40):
        loop.compute()
        loop.span("clip", 10, "clip_grad_norm_", line=26)


def test_clipping_tensor_by_tensor_on_a_gpu_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    clip(loop, False, "cuda:0")
    finding = find(rule)
    assert finding.share == pytest.approx(0.5, abs=0.02)
    assert str(finding.location) == "train.py:26"
    assert finding.saving[1] == 1.0


@pytest.mark.parametrize(("foreach", "device"), [(None, "cuda:0"), (True, "cuda:0"), (False, "cpu")])
def test_clipping_that_foreach_would_not_speed_up_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], foreach: object, device: str
) -> None:
    clip(loop, foreach, device)
    assert isinstance(ask(rule), Clear)


def test_no_time_is_sold_twice(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, reads=40)
    found = {finding.rule: finding.share for finding in diagnosis().findings}
    assert "gradient_norm_per_step" in found
    assert "host_sync_in_step" not in found
    assert found.get("python_overhead", 0.0) < 0.02


def test_without_the_probe_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    write(loop, reads=40)
    journal = loop.journal
    journal.describe("COVERAGE", "probe/sync", journal.text("it failed"), start=journal.now, duration=1)
    outcome = {outcome.rule: outcome for outcome in diagnosis().outcomes}["gradient_norm_per_step"]
    assert outcome.state == "not checked"


def test_reads_of_the_next_step_s_model_are_no_gradient_norm(
    loop: Any, ask: Callable[[Rule], Answer]
) -> None:
    loop.journal.fact("optimizer/SGD#1/parameters", 40)
    for _ in range(40):
        for _ in range(40):
            loop.python(0.1)
            loop.span("sync", 0.02, "Tensor.__bool__", 0, 30)
        loop.span("backward", 5, line=23)
        loop.span("optimizer", 1, "SGD#1", line=24)
    assert isinstance(ask(rule), Clear)

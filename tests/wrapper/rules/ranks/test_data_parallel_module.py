from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.rules.model import Answer, Clear, Finding, Rule
from perfwrap.rules.ranks import data_parallel_module as rule


def train(loop: Any, kind: str = "DataParallel", devices: int = 4, steps: int = 30) -> None:
    loop.journal.fact("parallel/1/kind", kind)
    loop.journal.fact("parallel/1/devices", devices)
    for _ in range(steps):
        loop.compute()


def test_one_process_that_drives_several_gpus_is_found(loop: Any, find: Callable[[Rule], Finding]) -> None:
    train(loop)
    finding = find(rule)
    assert "4 GPUs" in finding.sentence
    assert "--nproc-per-node 4" in finding.advice
    assert (finding.share, finding.severity, finding.confidence) == (0.0, "minor", "inferred")


@pytest.mark.parametrize(("kind", "devices"), [("DataParallel", 1), ("DistributedDataParallel", 4)])
def test_one_gpu_or_another_wrapper_is_clear(
    loop: Any, ask: Callable[[Rule], Answer], kind: str, devices: int
) -> None:
    train(loop, kind, devices)
    assert isinstance(ask(rule), Clear)


def test_without_steps_it_is_not_checked(loop: Any, diagnosis: Callable[[], Any]) -> None:
    train(loop, steps=0)
    states = {outcome.rule: outcome.state for outcome in diagnosis().outcomes}
    assert states["data_parallel_module"] == "not checked"

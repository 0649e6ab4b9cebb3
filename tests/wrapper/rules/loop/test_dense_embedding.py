from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from perfwrap.measures.account.what_if import best_without
from perfwrap.rules.loop import dense_embedding as rule
from perfwrap.rules.model import Answer, Clear, Finding, NotChecked, Rule

SEEN: dict[str, object] = {
    "class": "torch.optim.adam.Adam",
    "elements": 2_000_000,
    "embedding_rows": 100_000,
    "embedding_elements": 1_600_000,
    "embedding_touched": "0.0100",
}


def write(loop: Any, ms: float = 9, device: str = "cpu", **facts: object) -> None:
    loop.journal.fact("model/Net/device", device)
    for key, value in {**SEEN, **facts}.items():
        loop.journal.fact(f"optimizer/SGD#1/{key}", value)
    for _ in range(40):
        loop.compute(optimizer=ms)


def test_an_optimizer_that_updates_rows_without_gradients_is_found_at_its_line(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop)
    finding = find(rule)
    assert finding.share == pytest.approx(0.5 * 0.8 * 0.99, abs=0.02)
    assert finding.saving == pytest.approx((best_without(finding.share), 1 - 0.9 * 0.94 * finding.share))
    assert str(finding.location) == "train.py:24"
    assert "SparseAdam" in finding.advice
    assert "100,000 embedding rows" in finding.evidence[0]


def test_an_optimizer_that_takes_sparse_gradients_itself_may_stay(
    loop: Any, find: Callable[[Rule], Finding]
) -> None:
    write(loop, **{"class": "torch.optim.sgd.SGD"})
    finding = find(rule)
    assert "SparseAdam" not in finding.advice
    assert "without momentum" in finding.advice


@pytest.mark.parametrize(
    "facts",
    [
        {"embedding_touched": "0.2000"},
        {"embedding_touched": "1.0000"},
        {"embedding_elements": 100_000},
        {"embedding_elements": None},
        {"fused": True},
        {"class": "torch.optim.lbfgs.LBFGS"},
        {"class": "torch.optim.sparse_adam.SparseAdam"},
    ],
)
def test_other_optimizers_are_clear(loop: Any, ask: Callable[[Rule], Answer], facts: dict[str, Any]) -> None:
    write(loop, **facts)
    assert isinstance(ask(rule), Clear)


def test_an_optimizer_that_takes_little_is_clear(loop: Any, ask: Callable[[Rule], Answer]) -> None:
    write(loop, ms=0.3)
    assert isinstance(ask(rule), Clear)


@pytest.mark.parametrize("how", [{"device": "cuda:0"}, {"elements": None}])
def test_without_a_recording_it_is_not_checked(
    loop: Any, ask: Callable[[Rule], Answer], how: dict[str, Any]
) -> None:
    write(loop, **how)
    assert isinstance(ask(rule), NotChecked)


@pytest.mark.parametrize(("torch", "experiments"), [("2.3.1", [None]), ("2.4.0", [None, "fused-optimizer"])])
def test_a_fused_optimizer_is_advised_only_where_torch_has_one_for_cpus(
    loop: Any, find: Callable[[Rule], Finding], torch: str, experiments: list[str | None]
) -> None:
    loop.journal.fact("torch", torch)
    write(loop)
    assert [option.experiment for option in find(rule).options] == experiments

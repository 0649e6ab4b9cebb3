from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "optimizer_options"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("optim.Adam(p)", "optim.Adam(p, fused=True)"),
        ("optim.SGD(p, lr=1, fused=False)", "optim.SGD(p, lr=1, fused=True)"),
        ("optim.AdamW(p, foreach=True, lr=1)", "optim.AdamW(p, lr=1, fused=True)"),
        ("optim.AdamW(p, lr=1, foreach=True,)", "optim.AdamW(p, lr=1, fused=True,)"),
    ],
)
def test_the_argument_is_set(apply: Callable[..., str], call: str, expected: str) -> None:
    program = f"from torch import optim\np = []\no = {call}  # here\n"
    assert apply(NAME, program, fused=True) == f"-o = {call}  # here\n+o = {expected}  # here"


def test_foreach_is_set(apply: Callable[..., str]) -> None:
    program = "import torch\no = torch.optim.RMSprop([])  # here\n"
    assert "+o = torch.optim.RMSprop([], foreach=True)" in apply(NAME, program, foreach=True)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("Adam(p, fused=True)", "has fused=True"),
        ("Adam(p, **options)", "unpacked"),
        ("Adam(p, fused=gpu)", "fused is gpu"),
        ("Adam(p, differentiable=True)", "differentiable"),
        ("Adam(nn.Embedding(9, 9, sparse=True).parameters())", "sparse"),
        ("apex.Adam(p)", "not an optimizer of torch.optim"),
        ("RMSprop(p)", "no call of an optimizer with fused"),
    ],
)
def test_what_may_not_work_is_refused(refuse: Callable[..., str], call: str, reason: str) -> None:
    program = f"import apex\nfrom torch.optim import Adam, RMSprop\no = {call}  # here\n"
    assert reason in refuse(NAME, program, fused=True)


def test_an_optimizer_of_the_file_itself_is_refused(refuse: Callable[..., str]) -> None:
    program = "import torch\n\nclass AdamW(torch.optim.Optimizer):\n    pass\n\no = AdamW(p)  # here\n"
    assert "but of this file" in refuse(NAME, program, fused=True)

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "buffered_tensors"
PROGRAM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, x):
        scale = torch.tensor([0.2, 0.8], device=x.device)  # here
        return x * scale
"""


def test_it_becomes_a_buffer(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        '+        self.register_buffer("scale_buffer", torch.tensor([0.2, 0.8]), persistent=False)\n'
        "-        scale = torch.tensor([0.2, 0.8], device=x.device)  # here\n"
        "+        scale = self.scale_buffer.to(x.device)  # here"
    )


def test_results_and_checkpoints_are_the_same() -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    found = edit(NAME, PROGRAM, Target(11))
    assert isinstance(found, Edited)
    results = []
    for text in (PROGRAM, found.text):
        names: dict[str, object] = {}
        exec(text, names)
        model = names["Model"](1)
        results.append((model(torch.ones(2)).tolist(), list(model.state_dict())))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[0.2, 0.8]", "self.n", "is not a literal"),
        ("device=x.device", "requires_grad=True", "requires a gradient"),
        ("return x * scale", "return scale", "passes it on"),
        ("return x * scale", "scale.add_(1)", "changes scale"),
        ("return x * scale", "scale[0] = 1", "changes scale"),
        ("return x * scale", "return x.half()", "other types"),
        ("        super().__init__()\n", "", "calls super"),
        ("def forward(self, x)", "def __init__(self, x)", "runs in each step"),
        ("torch.tensor([0.2, 0.8]", "torch.rand(2", "does not create one tensor"),
    ],
)
def test_what_may_change_is_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "sliced_head"
PROGRAM = """
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        logits = self.head(x)  # here
        print(logits[:, -1, :].shape)
        return logits[:, -1, :]
"""


def test_a_variable_that_is_only_sliced(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "-        logits = self.head(x)  # here\n-        print(logits[:, -1, :].shape)\n"
        "-        return logits[:, -1, :]\n"
        "+        logits = self.head(x[:, -1, :])  # here\n+        print(logits.shape)\n+        return logits"
    )


def test_a_slice_of_the_call(apply: Callable[..., str]) -> None:
    program = "head = nn.Linear(8, 8)\ny = head(a + b)[:, [0, 1], :]  # here\n"
    assert "+y = head((a + b)[:, [0, 1], :])" in apply(NAME, program)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("return logits[:, -1, :]", "return logits", "uses all of logits"),
        ("return logits[:, -1, :]", "return logits[:, 0, :]", "several slices"),
        ("[:, -1, :]", "[:, -1]", "may be of the last dimension"),
        ("[:, -1, :]", "[:, -1, 2:]", "may be of the last dimension"),
        ("[:, -1, :]", "[:, n, :]", "has variables"),
        ("print(logits[:, -1, :].shape)", "logits[:, -1, :] = 0", "sets a part"),
        ("nn.Linear", "nn.LSTM", "no call of a linear layer"),
        ("print(logits[:, -1, :].shape)", "logits = 0", "in several places"),
    ],
)
def test_what_needs_all_of_it_is_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "library_optimizer"
PROGRAM = """
import torch
from torch.optim import Optimizer

class AdamW(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    def step(self, closure=None):
        update(self.param_groups)

optimizer = AdamW(model.parameters(), lr=5e-4)  # here
"""


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        (
            "AdamW(model.parameters(), lr=5e-4)",
            "model.parameters(), lr=5e-4, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, fused=True",
        ),
        (
            "AdamW(groups, 5e-4, (0.8, 0.9), weight_decay=d)",
            "groups, lr=5e-4, betas=(0.8, 0.9), weight_decay=d, eps=1e-6, fused=True",
        ),
        (
            "AdamW(params=groups, lr=1, betas=b, eps=e, weight_decay=w)",
            "params=groups, lr=1, betas=b, eps=e, weight_decay=w, fused=True",
        ),
    ],
)
def test_the_values_of_the_class_are_written_into_the_call(
    apply: Callable[..., str], call: str, arguments: str
) -> None:
    assert apply(NAME, PROGRAM.replace("AdamW(model.parameters(), lr=5e-4)", call)) == (
        f"-optimizer = {call}  # here\n+optimizer = torch.optim.AdamW({arguments})  # here"
    )


def test_a_call_over_several_lines_keeps_its_form(apply: Callable[..., str]) -> None:
    program = PROGRAM.replace(
        "AdamW(model.parameters(), lr=5e-4)  # here",
        "AdamW(  # here\n    model.parameters(),\n    lr=5e-4,\n)",
    )
    assert apply(NAME, program) == (
        "-optimizer = AdamW(  # here\n+optimizer = torch.optim.AdamW(  # here\n"
        "-    lr=5e-4,\n+    lr=5e-4, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0, fused=True,"
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("AdamW(model.parameters(), lr=5e-4)", "AdamW(model.parameters(), **options)", "unpacked"),
        ("AdamW(model.parameters(), lr=5e-4)", "AdamW(model.parameters(), correct=True)", "has no correct"),
        ("AdamW(model.parameters(), lr=5e-4)", "AdamW(p, 1, 2, 3, 4, 5)", "more arguments"),
        ("AdamW(model.parameters(), lr=5e-4)", "torch.optim.AdamW(p)", "no optimizer whose class"),
        ("class AdamW(Optimizer)", "class AdamW(Base)", "not an optimizer of its own"),
        ("eps=1e-6, weight", "eps=EPSILON, weight", "not written as a value"),
        ("weight_decay=0.0)", "weight_decay=0.0, **more)", "other than plain parameters"),
        ("    def step(", "    def swap(self): ...\n\n    def step(", "has swap()"),
    ],
)
def test_others_are_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

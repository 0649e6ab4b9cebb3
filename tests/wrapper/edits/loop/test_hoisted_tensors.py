from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "hoisted_tensors"
PROGRAM = """
import torch

def train(model, loader, n, device):
    for epoch in range(3):
        for x in loader:

            mask = torch.tril(torch.ones(n, n, device=device)).view(1, n, n)  # here
            loss = model(x, mask)
"""


def test_it_moves_before_the_outermost_loop(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "+    mask = torch.tril(torch.ones(n, n, device=device)).view(1, n, n)  # here\n"
        "-\n-            mask = torch.tril(torch.ones(n, n, device=device)).view(1, n, n)  # here"
    )


def test_it_stays_in_a_loop_that_changes_what_it_needs(apply: Callable[..., str]) -> None:
    program = PROGRAM.replace("        for x in", "        n = epoch\n        for x in")
    assert apply(NAME, program).startswith("+        mask = torch.tril(")


def test_a_tensor_that_is_only_read_moves(apply: Callable[..., str]) -> None:
    program = PROGRAM.replace("model(x, mask)", "model(torch.cat([mask, x]), mask[0], mask + 1, mask=mask)")
    assert "torch.tril(" in apply(NAME, program)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("torch.ones(n, n, device=device)", "torch.rand(n, n)", "may return another value"),
        ("torch.ones(n, n, device=device)", "torch.ones(model(n))", "may return another value"),
        ("torch.ones(n, n, device=device)", "torch.ones(x)", "changes x"),
        ("torch.ones(n, n, device=device)", "torch.ones(self.n)", "self.n may be another value"),
        ("torch.tril(torch.ones(n, n, device=device))", "(torch.ones(n) * w)", "parameter"),
        ("torch.tril(torch.ones(n, n, device=device))", "torch.tril(w)", "may return another value"),
        ("device=device", "requires_grad=True", "requires a gradient"),
        ("model(x, mask)", "model(x, mask.mul_(2))", "changes mask"),
        ("loss = model(x, mask)", "mask[0] = 1", "changes mask"),
        ("loss = model(x, mask)", "mask = mask + 1", "in several places"),
        ("loss = model(x, mask)", "total = mask; total += x", "another name"),
        ("loss = model(x, mask)", "total = mask if n else x", "another name"),
        ("loss = model(x, mask)", "masks.append(mask)", "another name"),
        ("loss = model(x, mask)", "pair = [mask, x]", "another name"),
        ("loss = model(x, mask)", "mask.view(-1).add_(1)", "changes mask"),
        ("        for x in loader:", "        for x in [mask]:", "used before"),
        ("    for epoch in range(3):\n        for x in loader:", "    if 1:\n        if 2:", "not in a loop"),
        ("mask = torch", "mask, x = torch", "does not create a tensor"),
    ],
)
def test_what_may_differ_is_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

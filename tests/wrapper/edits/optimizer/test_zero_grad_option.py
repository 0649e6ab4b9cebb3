from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "zero_grad_option"


@pytest.mark.parametrize(
    ("call", "expected"),
    [("zero_grad(set_to_none=False)", "zero_grad()"), ("zero_grad( False )", "zero_grad( )")],
)
def test_the_argument_is_removed(apply: Callable[..., str], call: str, expected: str) -> None:
    program = f"for x in y:\n    optimizer.{call}  # here\n    if p.grad is not None: p.grad.clamp_(0)\n"
    assert apply(NAME, program) == f"-    optimizer.{call}  # here\n+    optimizer.{expected}  # here"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("optimizer.zero_grad()  # here\n", "sets the gradients to None"),
        ("optimizer.zero_grad(set_to_none=slow)  # here\n", "set_to_none is slow"),
        ("optimizer.zero_grad(False)  # here\np.grad += 1\n", "Line 2 reads a gradient"),
    ],
)
def test_what_may_need_zeros_is_refused(refuse: Callable[..., str], program: str, reason: str) -> None:
    assert reason in refuse(NAME, program)

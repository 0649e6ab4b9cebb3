from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "repeated_forward"


def test_the_first_result_is_used(apply: Callable[..., str]) -> None:
    program = """
    for x, y in loader:
        out = model(x)
        loss = criterion(out, y)
        right += (model(x).argmax(1) == y).sum()  # here
        loss.backward()
    """
    assert apply(NAME, program) == (
        "-    right += (model(x).argmax(1) == y).sum()  # here\n"
        "+    right += (out.argmax(1) == y).sum()  # here"
    )


def test_a_result_without_a_name_gets_one(apply: Callable[..., str]) -> None:
    program = "for x in y:\n    loss = f(model(x))\n    other = g(model(x))  # here\n"
    assert apply(NAME, program) == (
        "-    loss = f(model(x))\n-    other = g(model(x))  # here\n"
        "+    output = model(x)\n+    loss = f(output)\n+    other = g(output)  # here"
    )


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        ("x = x + 1", "changes after"),
        ("x.add_(1)", "changes after"),
        ("x[0] = 1", "changes after"),
        ("loss.backward()", "calls loss.backward"),
        ("optimizer.step()", "calls optimizer.step"),
        ("model.eval()", "calls model.eval"),
        ("out = 1", "out changes after"),
        ("out.mul_(2)", "out changes after"),
        ("drop = nn.Dropout(0.1)", "has dropout"),
    ],
)
def test_what_may_change_the_result_is_refused(refuse: Callable[..., str], between: str, reason: str) -> None:
    program = f"for x in y:\n    out = model(x)\n    {between}\n    a = model(x)  # here\n"
    assert reason in refuse(NAME, program)


def test_calls_of_other_blocks_are_refused(refuse: Callable[..., str]) -> None:
    program = "if a:\n    out = model(x)\nb = model(x)  # here\n"
    assert "no call that an earlier line" in refuse(NAME, program)


@pytest.mark.parametrize("call", ["torch.rand_like(x)", "next(x)", "sample(x)"])
def test_random_calls_are_refused(refuse: Callable[..., str], call: str) -> None:
    assert "another result each time" in refuse(NAME, f"a = {call}\nb = {call}  # here\n")

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "transfer_option"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("x.to(device)", "x.to(device, non_blocking=True)"),
        ("batch['x'].cuda()", "batch['x'].cuda(non_blocking=True)"),
        ("x.to(device, non_blocking=False)", "x.to(device, non_blocking=True)"),
    ],
)
def test_a_copy_does_not_wait(call: str, expected: str, apply: Callable[..., str]) -> None:
    assert f"+x = {expected}  # here" in apply(NAME, f"x = {call}  # here\n")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("x.to(device, torch.float32, False)", "by its position"),
        ("x.to(device, non_blocking=flag)", "non_blocking is flag"),
        ("x.to(**options)", "unpacked"),
        ("x.to(a), y.to(a)", "several calls"),
        ("x.numpy()", "no call of"),
    ],
)
def test_what_is_not_certain_is_refused(call: str, said: str, refuse: Callable[..., str]) -> None:
    assert said in refuse(NAME, f"x = {call}  # here\n")

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "cleanup_calls"


@pytest.mark.parametrize("call", ["gc.collect()", "torch.cuda.empty_cache()", "cuda.empty_cache()"])
def test_the_call_is_removed(apply: Callable[..., str], call: str) -> None:
    program = (
        f"import gc, torch\nfrom torch import cuda\nfor x in y:\n    x()\n    # Why.\n    {call}  # here\n"
    )
    assert apply(NAME, program) == f"-    {call}  # here"


def test_the_only_statement_of_a_block_becomes_pass(apply: Callable[..., str]) -> None:
    program = "import gc\nfor x in y:\n    if x: gc.collect()  # here\n"
    assert apply(NAME, program) == "-    if x: gc.collect()  # here\n+    if x: pass  # here"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import gc\nfor x in y:\n    n = gc.collect()  # here\n", "is used"),
        ("import gc\ngc.collect()  # here\n", "runs once"),
        ("import mine as gc\nfor x in y:\n    gc.collect()  # here\n", "no call of empty_cache"),
    ],
)
def test_other_calls_are_refused(refuse: Callable[..., str], program: str, reason: str) -> None:
    assert reason in refuse(NAME, program)

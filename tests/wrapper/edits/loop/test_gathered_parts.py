from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "gathered_parts"
PROGRAM = """
import torch

def predict(model, loader):
    out = torch.empty(0)
    for x in loader:
        y = model(x)
        out = torch.cat((out, y.detach()), dim=0)  # here
    return out
"""


def test_the_parts_are_joined_once(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "+    out_parts = [out]\n"
        "-        out = torch.cat((out, y.detach()), dim=0)  # here\n"
        "+        out_parts.append(y.detach())  # here\n"
        "+    out = torch.cat(out_parts, dim=0)"
    )


def test_the_result_is_the_same(apply: Callable[..., str]) -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    found = edit(NAME, PROGRAM, Target(8))
    assert isinstance(found, Edited)
    for batches in ([torch.randn(3, 2), torch.randn(1, 2)], [torch.arange(3)], []):
        results = []
        for text in (PROGRAM, found.text):
            names: dict[str, object] = {}
            exec(text, names)
            results.append(names["predict"](lambda x: x, batches))
        assert torch.equal(*results) and results[0].dtype == results[1].dtype


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("(out, y.detach())", "(y.detach(), out)", "does not add to the end"),
        ("(out, y.detach())", "(out, y, y)", "does not join"),
        ("y = model(x)", "y = model(out)", "Line 6 uses out in the loop"),
        ("y.detach()", "out[:1]", "uses out twice"),
        ("    for x in loader:", "    if loader:", "not in a loop"),
    ],
)
def test_what_the_loop_needs_is_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

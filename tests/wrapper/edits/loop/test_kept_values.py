from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "kept_values"
PROGRAM = """
def train(loader):
    losses = []
    for x in loader:
        loss = f(x)
        losses.append(loss.item())  # here
    return sum(losses) / len(losses)
"""


def test_the_values_are_read_after_the_loop(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "-        losses.append(loss.item())  # here\n+        losses.append(loss.detach().clone())  # here\n"
        "+    losses[:] = [float(value) for value in losses]"
    )


def test_behind_the_loop_the_list_may_become_its_mean(apply: Callable[..., str]) -> None:
    program = """
    for epoch in range(3):
        losses, n = [], []
        for x in loader:
            losses.append(loss.item())  # here
        losses = np.mean(losses)
    """
    assert "+    losses[:] = [float(value) for value in losses]" in apply(NAME, program)


def test_values_that_change_in_place_afterwards_are_kept_as_they_were() -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    program = PROGRAM.replace("# here", "# here\n        loss /= 4")
    found = edit(NAME, program, Target(6))
    assert isinstance(found, Edited)
    results = []
    for text in (program, found.text):
        names: dict[str, object] = {"f": lambda x: x * 2}
        exec(text, names)
        results.append(names["train"]([torch.tensor(float(number)) for number in range(5)]))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("# here", "# here\n        print(losses[-1])", "Line 6 uses losses in the loop"),
        ("losses = []", "losses = load()", "not made in the same function"),
        ("    for x", "    losses = losses + [1]\n    for x", "something else than a new list"),
        ("    losses = []\n", "", "not made in the same function"),
        ("loss.item()", "2 * loss.item()", "does not append a value"),
        ("losses.append", "self.losses.append", "append to a variable"),
        ("    for x in loader:\n", "    if 1:\n", "in a loop"),
    ],
)
def test_what_may_change_the_program_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))


def test_counts_are_refused(refuse: Callable[..., str]) -> None:
    assert "whole numbers" in refuse(NAME, PROGRAM.replace("losses", "hits").replace("loss", "right"))

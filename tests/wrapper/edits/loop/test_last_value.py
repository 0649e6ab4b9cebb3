from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "last_value"
PROGRAM = """
def train(loader, matrix):
    for x in loader:
        y = f(x)
        matrix = y.cpu().tolist()  # here
    return matrix
"""


def test_only_the_last_value_is_read(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "+    last_matrix = None\n-        matrix = y.cpu().tolist()  # here\n"
        "+        last_matrix = y.detach().clone()  # here\n"
        "+    if last_matrix is not None:\n+        matrix = last_matrix.tolist()"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y.cpu().tolist()", "y.sum().item()"),
        ("y.cpu().tolist()", "float(y.sum())"),
        ("y.cpu().tolist()", "y.cpu().numpy()"),
        ("# here", "# here\n        y.mul_(2)"),
        ("        matrix = y", "        if x > 2:\n            matrix = y"),
        ("        y = f(x)", "        y = f(x)\n        if x > 2: break"),
    ],
)
@pytest.mark.parametrize("rounds", [0, 5])
def test_the_variable_has_the_same_value_after_the_loop(old: str, new: str, rounds: int) -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    assert old in PROGRAM
    program = PROGRAM.replace(old, new)
    line = next(number for number, text in enumerate(program.splitlines(), 1) if "# here" in text)
    found = edit(NAME, program, Target(line))
    assert isinstance(found, Edited)
    results = []
    for text in (program, found.text):
        names: dict[str, object] = {"f": lambda x: torch.arange(4, dtype=torch.float32) * x}
        exec(text, names)
        results.append(names["train"](range(rounds), "before"))
    assert str(results[0]) == str(results[1]) and type(results[0]) is type(results[1])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("# here", "# here\n        print(matrix)", "Line 5 uses matrix in the loop"),
        ("        y =", "        matrix = None\n        y =", "uses matrix in the loop"),
        ("matrix = y", "rows = matrix = y", "does not set a variable"),
        ("y.cpu().tolist()", "[y.tolist()]", "does not set a variable"),
        ("y.cpu().tolist()", "y.numpy()", "no call of item(), tolist() or float()"),
        ("    for x in loader:\n", "    if 1:\n", "not in a loop"),
        ("    return", "    else:\n        pass\n    return", "more than its rounds"),
        ("    for x", "    def g():\n        return matrix\n    for x", "in another function"),
        ("matrix = y", "self.matrix = y", "does not set a variable"),
    ],
)
def test_what_may_change_the_program_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))


def test_a_value_that_is_read_where_the_loop_is_interrupted_is_refused(refuse: Callable[..., str]) -> None:
    program = """
    try:
        for x in loader:
            last = x.item()  # here
    except KeyboardInterrupt:
        print(last)
    """
    assert "where an exception ends the loop" in refuse(NAME, program)

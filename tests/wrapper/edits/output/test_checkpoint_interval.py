from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "checkpoint_interval"


@pytest.mark.parametrize(
    ("head", "test"),
    [
        ("for epoch in range(epochs):", "(epoch + 1) % 5 == 0 or epoch + 1 == epochs"),
        ("for i, x in enumerate(loader):", "(i + 1) % 5 == 0 or i + 1 == len(loader)"),
    ],
)
def test_it_saves_in_some_rounds_and_in_the_last_one(apply: Callable[..., str], head: str, test: str) -> None:
    program = f"import torch\n{head}\n    train()\n    torch.save(model.state_dict(), path)  # here\n"
    assert apply(NAME, program, every=5) == (
        "-    torch.save(model.state_dict(), path)  # here\n"
        f"+    if {test}:\n+        torch.save(model.state_dict(), path)  # here"
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("for e in range(9):\n    if best: torch.save(m, p)  # here\n", "does more than save"),
        (
            "for e in range(9):\n    best = f(e)\n    if best:\n        torch.save(m, p)  # here\n",
            "another condition",
        ),
        ("for e in epochs:\n    torch.save(m, p)  # here\n", "how many rounds"),
        ("for e in range(9, 1, -1):\n    torch.save(m, p)  # here\n", "how many rounds"),
        ("for e in range(n):\n    n = 3\n    torch.save(m, p)  # here\n", "how many rounds"),
        ("torch.save(m, p)  # here\n", "not in a loop"),
        ("for e in range(9):\n    x = torch.save(m, p)  # here\n", "does more than save"),
        ("for e in range(9):\n    torch.save(m, p)  # here\n    if x:\n        break\n", "may end early"),
        ("def f():\n  for e in range(9):\n    torch.save(m, p)  # here\n    if x: return\n", "may end early"),
    ],
)
def test_others_are_refused(refuse: Callable[..., str], program: str, reason: str) -> None:
    assert reason in refuse(NAME, f"import torch\n{program}", every=5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("step % 5 == 4", "step % 25 == 24 or step + 1 == 100"),
        ("(step + 1) % 5 == 0", "(step + 1) % 25 == 0 or step + 1 == 100"),
        ("step % 5 == 2", "step % 25 == 2 or step + 1 == 100"),
    ],
)
def test_an_interval_becomes_longer(apply: Callable[..., str], old: str, new: str) -> None:
    program = f"import torch\nfor step in range(100):\n    if {old}:\n        x = 1\n        torch.save(m, p)  # here\n"
    assert apply(NAME, program, every=5) == f"-    if {old}:\n+    if {new}:"

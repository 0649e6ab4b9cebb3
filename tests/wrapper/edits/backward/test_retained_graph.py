from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "retained_graph"


def test_the_argument_is_removed(apply: Callable[..., str]) -> None:
    program = """
    for x in loader:
        loss = model(x)
        (loss / 2).backward(retain_graph=True)  # here
        other = model(x)
        other.backward()
    """
    assert apply(NAME, program) == (
        "-    (loss / 2).backward(retain_graph=True)  # here\n+    (loss / 2).backward()  # here"
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (
            "for x in y:\n    l = f(x)\n    l.backward(retain_graph=True)  # here\n    l.backward()\n",
            "same graph",
        ),
        (
            "for x in y:\n    h = f(x)\n    a = g(h)\n    b = g(h)\n    a.backward(retain_graph=True)  # here\n"
            "    b.backward()\n",
            "line 6 may use the same graph",
        ),
        (
            "def f(m):\n    h = g(m)\n    h.backward(retain_graph=True)  # here\n    (h + 1).backward()\n",
            "same graph",
        ),
        ("l.backward(retain_graph=True, create_graph=True)  # here\n", "create_graph"),
        ("l.backward(retain_graph=keep)  # here\n", "no retain_graph=True"),
        ("l.backward()  # here\n", "no retain_graph=True"),
    ],
)
def test_a_graph_that_is_used_again_stays(refuse: Callable[..., str], program: str, reason: str) -> None:
    assert reason in refuse(NAME, program)

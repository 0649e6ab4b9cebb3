from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "thread_count"


def test_it_is_set_before_the_statement(apply: Callable[..., str]) -> None:
    program = """
    import torch

    def main():
        # The loader.
        loader = DataLoader(
            data,  # here
        )
    """
    assert apply(NAME, program, threads=1) == "+    torch.set_num_threads(1)"


def test_a_call_at_the_line_gets_the_number(apply: Callable[..., str]) -> None:
    program = "import torch\ntorch.set_num_threads(8)  # here\n"
    assert "+torch.set_num_threads(1)  # here" in apply(NAME, program, threads=1)
    program = program.replace("8", "8 * os.cpu_count()")
    assert "+torch.set_num_threads(1)  # here" in apply(NAME, program, threads=1)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import torch\ntorch.set_num_threads(2)\nloader = 1  # here\n", "calls set_num_threads"),
        ("import torch\nfor epoch in range(3):\n    loader = 1  # here\n", "is in a loop"),
        ("import torch\ntorch.set_num_threads(n)  # here\n", "another value"),
        ("import torch\n\n# here\n", "is no statement"),
    ],
)
def test_it_is_refused(program: str, said: str, refuse: Callable[..., str]) -> None:
    assert said in refuse(NAME, program, threads=1)

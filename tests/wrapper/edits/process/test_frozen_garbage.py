from __future__ import annotations

from collections.abc import Callable

NAME = "frozen_garbage"


def test_it_is_called_before_the_outermost_loop(apply: Callable[..., str]) -> None:
    program = '''
    """A script."""

    import torch

    def main():
        # The epochs.
        for epoch in range(3):
            for x in loader:
                train(x)  # here
    '''
    assert apply(NAME, program) == "+import gc\n+    gc.collect()\n+    gc.freeze()"


def test_an_import_is_used(apply: Callable[..., str]) -> None:
    assert apply(NAME, "import gc as g\nfor x in y:\n    x()  # here\n") == "+g.collect()\n+g.freeze()"


def test_a_line_without_a_loop_is_refused(refuse: Callable[..., str]) -> None:
    assert "not in a loop" in refuse(NAME, "x = 1  # here\n")


def test_full_collections_are_made_rare(apply: Callable[..., str]) -> None:
    done = apply(NAME, "import gc\nfor x in y:\n    x()  # here\n", rare=True)
    assert done == "+gc.collect()\n+gc.freeze()\n+gc.set_threshold(*gc.get_threshold()[:2], 1000)"

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "evaluation_mode"
EVALUATE = """
import torch

def evaluate(model, loader):
    model.eval()
    total = 0
    for x, y in loader:  # here
        total += (model(x).argmax(1) == y).sum()
    model.train()
    return total / len(loader)

def main(model, loader):
    for epoch in range(3):
        for x, y in loader:
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
        print(evaluate(model, loader))
"""


def test_a_function_that_evaluates_gets_a_decorator(apply: Callable[..., str]) -> None:
    assert apply(NAME, EVALUATE) == "+@torch.no_grad()"


def test_a_method_keeps_its_decorators(apply: Callable[..., str]) -> None:
    program = """
    import torch.nn as nn

    class Trainer:
        # Before the decorators.
        @staticmethod
        def test(model, loader):
            for x in loader:
                model(x)  # here
    """
    assert apply(NAME, program) == "+import torch\n+    @torch.no_grad()"


def test_a_loop_in_a_function_that_trains_gets_a_block(apply: Callable[..., str]) -> None:
    program = '''
    """A script."""
    from __future__ import annotations

    import torch

    def main(model, train, test):
        for epoch in range(3):
            for x, y in train:
                loss = model(x, y)
                loss.backward()
                optimizer.step()
            # Now the test.
            for x, y in test:  # here
                loss = model(x,
                             y)
                # Inside.
                right = f"""a
      b"""
            print(loss.item())
    '''
    assert apply(NAME, program) == (
        "-        for x, y in test:  # here\n-            loss = model(x,\n-                         y)\n"
        '-            # Inside.\n-            right = f"""a\n'
        "+        with torch.no_grad():\n+            for x, y in test:  # here\n+                loss = model(x,\n"
        '+                             y)\n+                # Inside.\n+                right = f"""a'
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "    model.eval()\n",
            "    model.eval()\n    torch.set_grad_enabled(False)\n",
            "under set_grad_enabled",
        ),
        ("def evaluate", "@torch.no_grad()\ndef evaluate", "under no_grad"),
        ("    return total / len(loader)", "    yield total", "is a generator"),
        (
            "        print(evaluate(model, loader))",
            "        evaluate(model, loader).backward()",
            "backward pass may use",
        ),
        (
            "        print(evaluate(model, loader))",
            "        a = [evaluate(model, loader)]\n        b = sum(a)\n        b.backward()",
            "backward pass may use",
        ),
        ("    for x, y in loader:  # here", "    if 1:  # here", "not in a loop"),
        ("        total +=", "        optimizer.step()\n        total +=", "The loop trains: line 7"),
        ("        total +=", "        train_batch(x)\n        total +=", "calls train_batch"),
        ("        total +=", "        main(x, y)\n        total +=", "calls main"),
        ("def evaluate", "def forward", "may be part of the training"),
        ("    total = 0\n", "    total = torch.optim\n", "may prepare a training"),
        ("    model.eval()\n", "    def inner(): pass\n", "may prepare a training"),
    ],
)
def test_what_may_train_is_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in EVALUATE
    assert reason in refuse(NAME, EVALUATE.replace(old, new))


def test_a_loop_whose_values_are_trained_with_is_refused(refuse: Callable[..., str]) -> None:
    program = """
    import torch
    def main(model, loader):
        parts = []
        for x in test_loader:  # here
            parts.append(model(x))
        loss = torch.stack(parts).mean()
        loss.backward()
    """
    assert "backward pass may use" in refuse(NAME, program)


def test_what_says_nothing_of_evaluation_is_refused(refuse: Callable[..., str]) -> None:
    assert "not known to evaluate" in refuse(NAME, "def run(x):\n    for y in x:  # here\n        f(y)\n")
    assert "not known to evaluate" in refuse(NAME, "for y in x:  # here\n    f(y)\n")

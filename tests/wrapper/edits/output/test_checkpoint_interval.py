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


TRAINER = """
import os
import torch

class Trainer:
    def __init__(self, args):
        self.args, self.step, self.rank = args, 0, args.rank

    def save_checkpoint(self):
        path = os.path.join(self.args.folder, "last.pt")
        torch.save({"model": self.model.state_dict(), "step": self.step}, path + ".part")  # here
        os.replace(path + ".part", path)
        print("saved", path)

    def train(self):
        while self.step < self.args.max_steps:
            self.training_step()
            self.step += 1
            if self.rank == 0:
                if self.step % self.args.save_steps == 0:
                    self.save_checkpoint()
"""


def test_a_trainer_that_saves_in_a_method_does_it_less_often(apply: Callable[..., str]) -> None:
    assert apply(NAME, TRAINER, every=5) == (
        "-                if self.step % self.args.save_steps == 0:\n"
        "+                if self.step % (5 * self.args.save_steps) == 0 or self.step >= self.args.max_steps:"
    )


def test_a_call_in_each_round_gets_a_condition(apply: Callable[..., str]) -> None:
    program = TRAINER.replace("                if self.step % self.args.save_steps == 0:\n    ", "")
    assert apply(NAME, program, every=5) == (
        "-                self.save_checkpoint()\n"
        "+                if self.step % 5 == 0 or self.step >= self.args.max_steps:\n"
        "+                    self.save_checkpoint()"
    )


def test_a_counter_at_the_end_of_the_round_counts_from_the_next_one(apply: Callable[..., str]) -> None:
    program = "import torch\nwhile step < steps:\n    train()\n    torch.save(m, p)  # here\n    step += 1\n"
    changed = apply(NAME, program, every=5)
    assert "+    if (step + 1) % 5 == 0 or step + 1 >= steps:" in changed


@pytest.mark.parametrize(
    ("head", "test"),
    [
        ("range(1, epochs + 1)", "epoch % 5 == 0 or epoch == epochs"),
        ("range(args.start, args.epochs)", "epoch % 5 == 0 or epoch + 1 == args.epochs"),
    ],
)
def test_a_range_with_a_start_has_a_last_round(apply: Callable[..., str], head: str, test: str) -> None:
    program = f"import torch\nfor epoch in {head}:\n    torch.save(m, p)  # here\n"
    assert f"+    if {test}:" in apply(NAME, program, every=5)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("            self.step += 1\n", "            self.step += 2\n", "by self.step += 1"),
        ("self.training_step()", "self.training_step()\n            if x: break", "may end early"),
        ("self.training_step()", "if x: continue", "by self.step += 1"),
        ('print("saved", path)', "self.validate()", "calls self.validate()"),
        ('print("saved", path)', "self.last = path", "sets self.last"),
        (
            "    def train(self):",
            "    def finish(self):\n        self.save_checkpoint()\n\n    def train(self):",
            "one",
        ),
        (
            "    def train(self):",
            "    def reset(self):\n        self.step = 0\n\n    def train(self):",
            "also set",
        ),
        ("self.step < self", "self.step <= self", "up to a number"),
        (
            "    def train(self):",
            "    def f(self):\n        self.rank = 1\n\n    def train(self):",
            "condition",
        ),
        ("save_steps == 0", "save_steps == 3", "another condition"),
    ],
)
def test_a_trainer_that_does_more_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in TRAINER
    assert reason in refuse(NAME, TRAINER.replace(old, new), every=5)


def test_a_save_in_the_background_can_also_be_rarer(apply: Callable[..., str]) -> None:
    program = "import torch\nfor e in range(9):\n    save_in_background(torch.save, m, p)  # here\n"
    assert "+    if (e + 1) % 5 == 0 or e + 1 == 9:" in apply(NAME, program, every=5)


def test_a_method_of_the_name_of_a_function_of_torch_is_known(apply: Callable[..., str]) -> None:
    program = TRAINER.replace("save_checkpoint(", "save(").replace(
        "self.training_step()", "self.training_step(save=1)"
    )
    assert "+                if self.step % (5 * self.args.save_steps) == 0 or" in apply(
        NAME, program, every=5
    )

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "averaged_weights"
PROGRAM = """
import torch

@torch.no_grad()
def update(model, average, decay):
    # The average.
    for p, q in zip(model.parameters(), average.parameters()):  # here
        q.mul_(decay).add_(p.data, alpha=1 - decay)
    return average
"""


def test_all_parameters_are_averaged_at_once(apply: Callable[..., str]) -> None:
    assert apply(
        NAME, PROGRAM.replace("  # here", "").replace("alpha=1 - decay)", "alpha=1 - decay)  # here")
    ) == (
        "-    for p, q in zip(model.parameters(), average.parameters()):\n"
        "-        q.mul_(decay).add_(p.data, alpha=1 - decay)  # here\n"
        "+    q_list = list(average.parameters())\n"
        "+    p_list = [p.data for p in model.parameters()]\n"
        "+    torch._foreach_mul_(q_list, decay)\n"
        "+    torch._foreach_add_(q_list, p_list, alpha=1 - decay)"
    )


@pytest.mark.parametrize(
    "line",
    [
        "q.mul_(decay).add_(p.data, alpha=1 - decay)",
        "q.lerp_(p, 1 - decay)",
        "q.data.copy_((1 - decay) * p.data + decay * q.data)",
    ],
)
def test_the_average_is_the_same_to_the_last_bit(line: str) -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    program = PROGRAM.replace("q.mul_(decay).add_(p.data, alpha=1 - decay)", line)
    found = edit(NAME, program, Target(8))
    assert isinstance(found, Edited)
    results = []
    for text in (program, found.text):
        torch.manual_seed(0)
        models = [torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.Linear(9, 3)) for _ in range(2)]
        names: dict[str, object] = {}
        exec(text, names)
        for _ in range(5):
            names["update"](*models, 0.99)
        results.append(list(models[1].parameters()))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("zip(model.parameters(), average.parameters())", "pairs", "two lists of parameters"),
        ("zip(model.parameters(), average.parameters())", "zip(a, b)", "not known to be a list"),
        ("alpha=1 - decay", "alpha=p.mean()", "another value for each parameter"),
        ("q.mul_(decay)", "q.mul_(decay).clone()", "not one of the forms"),
        ("q.mul_(decay).add_(", "print(q);q.mul_(decay).add_(", "more than one call"),
        ("q.mul_(decay)", "q.grad.mul_(decay)", "not a parameter of the loop"),
        (", alpha=1 - decay", "", "no alpha"),
        ("q.mul_(decay).add_(p.data, alpha=1 - decay)", "q.copy_(decay * p - decay * q)", "not a sum of two"),
    ],
)
def test_other_forms_are_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

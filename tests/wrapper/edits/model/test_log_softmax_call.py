from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "log_softmax_call"
IMPORTS = "import torch\nimport torch.nn.functional as F\nfrom torch.nn.functional import softmax\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.log(F.softmax(x, dim=1))", "F.log_softmax(x, dim=1)"),
        ("torch.log(torch.softmax(model(x), -1))", "torch.log_softmax(model(x), -1)"),
        ("F.softmax( x , 1 ).log()", "F.log_softmax( x , 1 )"),
        ("2 * (x.softmax(-1).log())", "2 * (x.log_softmax(-1))"),
    ],
)
def test_one_call_replaces_both(apply: Callable[..., str], old: str, new: str) -> None:
    assert apply(NAME, f"{IMPORTS}y = {old}  # here\n") == f"-y = {old}  # here\n+y = {new}  # here"


def test_a_variable_of_the_same_block_is_followed(apply: Callable[..., str]) -> None:
    program = IMPORTS + "p = F.softmax(x, dim=1)\nprint(p)\nloss = -torch.log(p).mean()  # here\n"
    assert "+loss = -F.log_softmax(x, dim=1).mean()" in apply(NAME, program)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("y = torch.log(F.softmax(x, 1) + 1e-8)", "not of one logarithm"),
        ("y = torch.log(softmax(x, 1))", "imported by its own name"),
        ("p = F.softmax(x, 1)\nx = 2\ny = torch.log(p)", "change before"),
        ("p = F.softmax(x, 1)\nx.add_(1)\ny = torch.log(p)", "change before"),
        ("p = F.softmax(x, 1)\np[0] = 1\ny = torch.log(p)", "change before"),
        ("p = F.softmax(x, 1)\nif a:\n    p = 1\ny = torch.log(p)", "not of one logarithm"),
        ("for p in F.softmax(x, 1): pass\ny = torch.log(p)", "not of one logarithm"),
    ],
)
def test_other_values_are_refused(refuse: Callable[..., str], program: str, reason: str) -> None:
    assert reason in refuse(NAME, f"{IMPORTS}{program}  # here\n")


MODEL = """
import torch
from torch import nn


class Classes(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        return torch.softmax(self.head(x), dim=-1)


def criterion(chances, wanted):
    logs = chances.log()  # here
    return nn.functional.nll_loss(logs, wanted)


def main():
    model = Classes()
    for x, y in data:
        criterion(model(x), y).backward()
        step(model.parameters())


if __name__ == "__main__":
    main()
"""


def test_a_model_may_return_what_a_function_takes_the_logarithm_of(apply: Callable[..., str]) -> None:
    assert apply(NAME, MODEL) == (
        "-        return torch.softmax(self.head(x), dim=-1)\n"
        "+        return torch.log_softmax(self.head(x), dim=-1)\n"
        "-    logs = chances.log()  # here\n"
        "+    logs = chances  # here"
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("step(model.parameters())", "print(model(x))", "uses the probabilities of Classes, too"),
        ("step(model.parameters())", "save(model)", "uses model for more than to call it"),
        ("step(model.parameters())", "criterion(model(x), y)", "not of one logarithm"),
        ("step(model.parameters())", "other = criterion", "not of one logarithm"),
        ("step(model.parameters())", "Other(Classes())", "uses Classes in another way"),
        ("(logs, wanted)", "(logs, wanted) + chances.sum()", "not of one logarithm"),
        ("chances.log()", "(chances + 1e-8).log()", "not of one logarithm"),
        ("criterion(model(x), y)", "criterion(2 * model(x), y)", "not of one logarithm"),
        ("__main__", "main", "Other files may use"),
        (
            "        return torch",
            "        if x is None:\n            return x\n        return torch",
            "not of one",
        ),
        ("def criterion", "@torch.compile\ndef criterion", "not of one"),
    ],
)
def test_a_model_whose_probabilities_have_other_readers_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in MODEL
    assert reason in refuse(NAME, MODEL.replace(old, new))

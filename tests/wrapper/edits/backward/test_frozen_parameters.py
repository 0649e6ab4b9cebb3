from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "frozen_parameters"
PROGRAM = """
import torch

def main(loader):
    model = Model(pretrained())
    trained = list(model.encoder[-1:].parameters()) + list(model.head.parameters())
    opt = torch.optim.AdamW(trained, lr=1e-3)  # here
    for x, y in loader:
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
    torch.save(model.state_dict(), "model.pt")
"""
IN_CLASS = """
from torch import optim

class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = optim.SGD(self.model.fc.parameters(), lr=0.1)  # here

    def step(self, x):
        self.model(x).sum().backward()
        self.optimizer.step()
"""


def test_what_the_optimizer_does_not_have_gets_no_gradients(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        '+    trained_2 = {id(parameter) for group in opt.param_groups for parameter in group["params"]}\n'
        "+    for parameter in model.parameters():\n"
        "+        parameter.requires_grad_(parameter.requires_grad and id(parameter) in trained_2)"
    )
    assert "in self.model.parameters():" in apply(NAME, IN_CLASS)


def test_training_is_the_same_and_only_trained_parameters_get_gradients() -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    class Model(torch.nn.Module):
        def __init__(self, encoder: object) -> None:
            super().__init__()
            self.encoder, self.head = encoder, torch.nn.Linear(8, 1)

        def forward(self, x: object) -> object:
            return self.head(self.encoder(x))

    def pretrained() -> object:
        torch.manual_seed(0)
        parts = [torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8)]
        parts[2].bias.requires_grad_(False)
        return torch.nn.Sequential(*parts)

    program = PROGRAM.replace('torch.save(model.state_dict(), "model.pt")', "result.append(model)")
    found = edit(NAME, program, Target(7))
    assert isinstance(found, Edited)
    models: list[torch.nn.Module] = []
    for text in (program, found.text):
        names = {"Model": Model, "pretrained": pretrained, "result": models}
        exec(text, names)
        names["main"]([(torch.ones(4, 8) * number, torch.ones(4, 1)) for number in range(5)])
    before, after = (model.state_dict() for model in models)
    assert all(torch.equal(before[name], after[name]) for name in before)
    untrained = ["encoder.0.weight", "encoder.0.bias", "encoder.2.bias"]
    assert [name for name, each in models[1].named_parameters() if each.grad is None] == untrained


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("trained, lr", "model.parameters(), lr", "may have all parameters of model"),
        ("trained, lr", "groups, lr", "not get parts of one known model"),
        ("    for x, y", "    other = torch.optim.SGD(more, lr=1)\n    for x, y", "another optimizer"),
        ("opt.step()", "opt.step(); opt.add_param_group({})", "add_param_group"),
        ("opt.step()", "print(model.encoder[0].weight.grad)", "uses grad"),
        ("opt.step()", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1)", "clip_grad_norm_()"),
        ("opt.step()", "model.requires_grad_(True)", "requires_grad_()"),
        ("    for x, y", "    model = torch.nn.DataParallel(model)\n    for x, y", "several processes"),
        ('torch.save(model.state_dict(), "model.pt")', "return model", "may be trained elsewhere"),
        ("opt = torch", "return torch", "gets no name"),
        ("model(x), y", "run(x), y", "one known model"),
    ],
)
def test_what_may_be_trained_or_read_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

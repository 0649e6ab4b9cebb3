"""What is told of gradients that nobody uses, and that telling it changes nothing."""

from __future__ import annotations

import pytest

NET = """
net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
def train(optimizer, steps=40, model=net, after=lambda: None):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        optimizer.step()
        after()
"""


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("train(torch.optim.SGD(net[1:].parameters(), 0.1))", "6 50 2 20 0.weight"),
        ("train(torch.optim.SGD(net.parameters(), 0.1))", None),
        ("net[0].requires_grad_(False)\ntrain(torch.optim.SGD(net[1:].parameters(), 0.1))", None),
        (
            """
def by_hand():
    with torch.no_grad():
        for parameter in net[0].parameters(): parameter -= 0.1 * parameter.grad
train(torch.optim.SGD(net[1:].parameters(), 0.1), after=by_hand)
""",
            None,
        ),
        (
            """
def by_hand():
    for parameter in net[0].parameters(): parameter.data.add_(parameter.grad.data, alpha=-0.1)
train(torch.optim.SGD(net[1:].parameters(), 0.1), after=by_hand)
""",
            None,
        ),
        (
            """
first, second = torch.optim.SGD(net[:1].parameters(), 0.1), torch.optim.Adam(net[1:].parameters())
train(second, after=first.step)
""",
            None,
        ),
        (
            """
train(torch.optim.SGD(net[1:].parameters(), 0.1))
for look in journal.every_interval: look()
train(torch.optim.Adam(net.parameters()))
""",
            "6 50 0 0 ",
        ),
    ],
    ids=["left out", "all trained", "frozen", "by hand", "through data", "two optimizers", "trained later"],
)
def test_only_what_nobody_changes_is_told(train, program: str, told: str | None) -> None:
    done = train(NET + program)
    assert done.journal.facts.get("model/Sequential/gradients") == told


def test_gradients_and_weights_are_as_without_it(train) -> None:
    done = train(
        NET
        + """
import copy
from perfwrap_recorder.probes import unused_gradients
other = copy.deepcopy(net)
train(torch.optim.SGD(net[1:].parameters(), 0.1))
unused_gradients.look = lambda optimizers: None
train(torch.optim.SGD(other[1:].parameters(), 0.1), model=other)
for mine, theirs in zip(net.parameters(), other.parameters()):
    assert torch.equal(mine, theirs) and torch.equal(mine.grad, theirs.grad)
"""
    )
    assert done.returncode == 0

from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "summed_backward"
PAIR = """
def train(model, optimizer):
    for x in loader:
        actor_loss, critic_loss = model(x)
        optimizer.zero_grad()
        actor_loss.backward(retain_graph=True)  # here
        total += actor_loss.item()
        critic_loss.backward()
        optimizer.step()
"""
LOOP = """
def step(net, optimizer, x, labels):
    optimizer.zero_grad()
    report = {}
    for name, out in net(x).items():
        loss = criterion(out, labels[name])
        loss.backward(retain_graph=True)  # here
        report[name] = loss.item()
    optimizer.step()
"""


def test_two_passes_become_one(apply: Callable[..., str]) -> None:
    assert apply(NAME, PAIR) == (
        "-        actor_loss.backward(retain_graph=True)  # here\n"
        "-        critic_loss.backward()\n+        (actor_loss + critic_loss).backward()"
    )
    moved = PAIR.replace("  # here", "").replace("critic_loss.backward()", "critic_loss.backward()  # here")
    assert "+        (actor_loss + critic_loss).backward()  # here" in apply(NAME, moved)


def test_the_losses_of_a_loop_get_one_pass_after_it(apply: Callable[..., str]) -> None:
    assert apply(NAME, LOOP) == (
        "+    losses = []\n"
        "-        loss.backward(retain_graph=True)  # here\n+        losses.append(loss)  # here\n"
        "+    if losses:\n+        sum(losses).backward()"
    )


def test_the_gradients_are_those_of_both_losses() -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    gradients = []
    program = """
def run(weight, x):
    shared = (weight * x).tanh()
    a, b = shared.sum(), shared.square().mean()
    a.backward(retain_graph=True)
    b.backward()
    for part in (a * 2, b * 3):
        part.backward(retain_graph=True)
"""
    texts = [program]
    for line in (5, 7):
        done = edit(NAME, texts[-1], Target(line))
        assert isinstance(done, Edited), done
        texts.append(done.text)
    for text in (program.replace("b.backward()", "b.backward(retain_graph=True)"), texts[-1]):
        torch.manual_seed(0)
        weight, x = torch.randn(9, requires_grad=True), torch.randn(9)
        names: dict[str, object] = {}
        exec(text.replace("+ b).backward()", "+ b).backward(retain_graph=True)"), names)
        names["run"](weight, x)
        gradients.append(weight.grad)
    assert torch.allclose(*gradients, rtol=1e-5)


@pytest.mark.parametrize(
    ("program", "old", "new", "said"),
    [
        (PAIR, "total += actor_loss.item()", "optimizer.step()", "does something between"),
        (PAIR, "total += actor_loss.item()", "norm = weight.grad", "does something between"),
        (PAIR, "total += actor_loss.item()", "critic_loss = actor_loss", "sets a loss"),
        (PAIR, "total += actor_loss.item()", "clip(model)", "does something between"),
        (PAIR, "retain_graph=True", "", "no retain_graph=True"),
        (PAIR, "actor_loss.backward(", "scaler.scale(actor_loss).backward(", "is not a variable"),
        (PAIR, "critic_loss.backward()", "f(critic_loss).backward()", "is not a variable"),
        (PAIR, "retain_graph=True", "retain_graph=True, create_graph=True", "create_graph"),
        (LOOP, "report[name] = loss.item()", "optimizer.step()", "uses gradients"),
        (LOOP, "report[name] = loss.item()", "report[name] = net.weight.grad", "uses gradients"),
        (LOOP, "report[name] = loss.item()", "loss /= 2", "in place"),
        (LOOP, "report[name] = loss.item()", "break", "may end early"),
        (LOOP, "for name, out in net(x).items():", "while True:", "neither"),
        (LOOP, "retain_graph=True", "", "no retain_graph=True"),
    ],
)
def test_what_may_use_the_gradients_is_refused(
    program: str, old: str, new: str, said: str, refuse: Callable[..., str]
) -> None:
    assert old in program
    assert said in refuse(NAME, program.replace(old, new))

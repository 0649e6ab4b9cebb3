from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "reused_copy"
PROGRAM = """
import copy
import torch

@torch.no_grad()
def update(average, model, decay):
    new = copy.deepcopy(model)
    # All of them.
    for mine, old, given in zip(new.parameters(), average.parameters(), model.parameters()):
        mine.copy_(old * decay + given * (1 - decay))
    return new

def main(net, steps):
    ema = copy.deepcopy(net)
    for step in range(steps):
        train(net)
        ema = update(ema, net, 0.9)  # here
    ema.eval()
    torch.save(ema.state_dict(), "ema.pt")
    return ema(torch.ones(3, 4))
"""


def test_the_average_itself_is_changed(apply: Callable[..., str]) -> None:
    expected = (
        "-    new = copy.deepcopy(model)\n+    new = average\n+    new.train(model.training)\n"
        "+    for own, given_2 in zip(new.buffers(), model.buffers()):\n+        own.copy_(given_2)"
    )
    assert apply(NAME, PROGRAM) == expected
    moved = PROGRAM.replace("  # here", "").replace("deepcopy(model)", "deepcopy(model)  # here")
    assert apply(NAME, moved) == expected.replace("model)\n+", "model)  # here\n+", 1).replace(
        "new = average", "new = average  # here"
    )


def test_the_average_is_the_same_to_the_last_bit() -> None:
    torch = pytest.importorskip("torch")
    from perfwrap.edits import edit
    from perfwrap.edits.outcome import Edited, Target

    program = PROGRAM.replace('torch.save(ema.state_dict(), "ema.pt")', "")
    found = edit(NAME, program, Target(17))
    assert isinstance(found, Edited)
    results = []
    for text in (program, found.text):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))

        def train(net: torch.nn.Module) -> None:
            net(torch.randn(8, 4)).sum().backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter -= 0.1 * parameter.grad

        names: dict[str, object] = {"train": train}
        exec(text, names)
        results.append(names["main"](net, 5))
    assert torch.equal(*results)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("@torch.no_grad()\n", "", "without gradients"),
        ("    return new", "    return new.eval()", "does not return the copy"),
        ("    return new", "    new.eval()\n    return new", "more than to set the copy"),
        ("mine.copy_(old", "mine.copy_(mine + old", "more than to set the parameters"),
        ("mine.copy_", "mine.add_", "more than to set the parameters"),
        ("zip(new.parameters()", "zip(new.buffers()", "does not go through"),
        ("        ema = update", "        other = update", "keeps the old average"),
        ("        train(net)", "        train(net)\n        best = ema", "may keep ema"),
        ("        train(net)", "        best = ema.state_dict()", "calls ema.state_dict()"),
        ("    ema = copy.deepcopy(net)", "    ema = net", "something else than a copy"),
        ("def main", "step = update\n\ndef main", "not only called"),
        ("new = copy.deepcopy(model)", "average = copy.deepcopy(model)", "does not"),
    ],
)
def test_what_may_keep_the_old_average_is_refused(
    refuse: Callable[..., str], old: str, new: str, reason: str
) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

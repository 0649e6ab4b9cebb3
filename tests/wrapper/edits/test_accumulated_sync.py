from __future__ import annotations

from collections.abc import Callable

import pytest

NAME = "accumulated_sync"
PROGRAM = """
import contextlib
from torch.nn.parallel import DistributedDataParallel as DDP

def train(model, loader):
    ddp = DDP(model)
    for i, (x, y) in enumerate(loader):
        # Forward.
        output = ddp(x)
        loss = f(output, y) / 4
        loss.backward()  # here
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def test_gradients_are_synchronised_before_the_step_only(apply: Callable[..., str]) -> None:
    assert apply(NAME, PROGRAM) == (
        "-        output = ddp(x)\n-        loss = f(output, y) / 4\n-        loss.backward()  # here\n"
        "+        with contextlib.nullcontext() if (i + 1) % 4 == 0 else ddp.no_sync():\n"
        "+            output = ddp(x)\n+            loss = f(output, y) / 4\n+            loss.backward()  # here"
    )


def test_the_import_is_added(apply: Callable[..., str]) -> None:
    assert "+import contextlib" in apply(NAME, PROGRAM.replace("import contextlib\n", ""))


def test_an_inner_loop_synchronises_in_its_last_round(apply: Callable[..., str]) -> None:
    program = """
    import contextlib
    model = nn.parallel.DistributedDataParallel(net)
    for step in range(9):
        optimizer.zero_grad()
        for _ in range(N):
            loss = model(x).sum()
            loss.backward()  # here
        optimizer.step()
    """
    assert apply(NAME, program) == (
        "-    for _ in range(N):\n-        loss = model(x).sum()\n-        loss.backward()  # here\n"
        "+    for part in range(N):\n"
        "+        with contextlib.nullcontext() if part + 1 == N else model.no_sync():\n"
        "+            loss = model(x).sum()\n+            loss.backward()  # here"
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("ddp = DDP(model)", "ddp = model", "No call of a model"),
        ("# here\n", "# here\n        i += 1\n", "changes after the forward pass"),
        (
            "        if (i + 1) % 4 == 0:\n",
            "        optimizer.step()\n        if 1:\n",
            "after each backward",
        ),
        ("(i + 1) % 4 == 0", "ready()", "not a simple one"),
        ("output = ddp(x)", "output = ddp(x); ddp.no_sync", "uses no_sync"),
    ],
)
def test_what_is_not_known_is_refused(refuse: Callable[..., str], old: str, new: str, reason: str) -> None:
    assert old in PROGRAM
    assert reason in refuse(NAME, PROGRAM.replace(old, new))

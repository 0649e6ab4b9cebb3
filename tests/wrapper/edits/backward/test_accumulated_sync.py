from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from perfwrap.edits import edit
from perfwrap.edits.outcome import Edited, Target

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


def test_the_weights_of_two_ranks_are_the_same_up_to_rounding(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = """
    import contextlib, os, sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    def main(rank):
        dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=rank, world_size=2)
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(4, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(8):
            loss = model(torch.ones(2, 4) * (i + rank)).pow(2).mean()
            loss.backward()  # here
            if (i + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
        print([weight.tolist() for weight in model.parameters()])

    main(int(sys.argv[1]))
    """
    program = textwrap.dedent(program).lstrip("\n")
    found = edit(NAME, program, Target(program[: program.index("# here")].count("\n") + 1))
    assert isinstance(found, Edited)
    said = []
    for name, text in (("old", program), ("new", found.text)):
        (tmp_path / f"{name}.py").write_text(text)
        words = [sys.executable, tmp_path / f"{name}.py"]
        ranks = [
            subprocess.Popen(
                [*words, str(rank), tmp_path / f"{name}.store"], stdout=subprocess.PIPE, text=True
            )
            for rank in (0, 1)
        ]
        said += [rank.communicate(timeout=120)[0] for rank in ranks]
    (old, old_other, new, new_other) = (re.findall(r"-?\d+\.\d+", text) for text in said)
    assert old == old_other and new == new_other and len(old) == 20
    # The sum of the means and the mean of the sums.
    assert list(map(float, new)) == pytest.approx(list(map(float, old)), rel=1e-4)

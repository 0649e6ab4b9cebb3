"""The program that scripts/faults.py torments: it trains a little, counts its steps aloud and says what came out.

``faults_loop.py STEPS WORKERS``. The lines are the same from run to run but for the first, its pid.
On standard error it says how much address space it took.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

print("pid", os.getpid(), flush=True)

import torch  # noqa: E402 - a fault may come while torch is being imported
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

BATCH, WIDTH = 8, 64


class Numbers(Dataset):
    """Samples that cost nothing and are the same each time."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), index % 7 / 7)


def train(steps: int, workers: int) -> nn.Module:
    """Make so many steps, each told of as soon as it is made."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, batch in enumerate(DataLoader(Numbers(steps * BATCH), BATCH, num_workers=workers), 1):
        optimizer.zero_grad()
        loss = (model(batch) - 1).square().mean()
        loss.backward()
        optimizer.step()
        print("step", step, flush=True)
    return model


if __name__ == "__main__":
    weights = b"".join(
        value.detach().numpy().tobytes() for value in train(*map(int, sys.argv[1:])).parameters()
    )
    print("weights", hashlib.sha256(weights).hexdigest())
    print("peak", Path("/proc/self/status").read_text().split("VmPeak:")[1].split()[0], "kB", file=sys.stderr)

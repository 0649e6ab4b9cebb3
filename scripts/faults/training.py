"""The program into which faults.py injects faults: it trains, prints each step and, at the end, its weights.

``training.py STEPS WORKERS``. The lines are the same in each run, except the first one, its pid.
It prints the size of its address space to standard error.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

print("pid", os.getpid(), flush=True)

import torch  # noqa: E402 - a fault may happen while torch is imported
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

BATCH, WIDTH = 8, 64


class Numbers(Dataset):
    """Samples that cost nothing and are always the same."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((WIDTH,), index % 7 / 7)


def train(steps: int, workers: int) -> nn.Module:
    """Make this many steps, each printed at once."""
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

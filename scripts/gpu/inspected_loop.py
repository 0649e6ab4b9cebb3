"""The program that gpu_check.py inspects on a GPU: each forward pass computes a constant again.

It has no reference to perfwrap; it prints its losses, which must be those of a bare run.
"""

from __future__ import annotations

import os

import torch
from torch import nn

DEVICE = os.environ.get("GPU_CHECK_DEVICE", "cuda")
STEPS, ROWS, WIDTH = 80, 64, 256


class Net(nn.Module):
    """A network with a mask that is the same in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs."""
        mask = torch.ones(WIDTH, WIDTH, device=x.device).tril()  # WASTED
        return self.last(torch.relu(self.first(x)) @ mask)  # type: ignore[no-any-return]


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    net = Net().to(DEVICE)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    x = torch.randn(ROWS, WIDTH).to(DEVICE)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"{loss.item():.6g}", flush=True)


if __name__ == "__main__":
    main()

"""Fit an energy to points with TorchEBM's exact score matching, as its example does."""

from __future__ import annotations

import sys
import time
import types

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

version = types.ModuleType("torchebm._version")  # which its build writes
version.__version__ = "0"  # type: ignore[attr-defined]
sys.modules["torchebm._version"] = version

from torchebm.core import BaseModel  # noqa: E402
from torchebm.losses import ScoreMatching  # noqa: E402

POINTS, FEATURES, BATCH, EPOCHS = 3072, 10, 128, 6


class Energy(BaseModel):
    """A small network."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(FEATURES, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)
        )

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return the energy of each point."""
        energy: torch.Tensor = self.network(points).squeeze(-1)
        return energy


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    points = torch.randn(POINTS, FEATURES) * torch.linspace(0.5, 2, FEATURES)
    loader = DataLoader(TensorDataset(points), batch_size=BATCH, shuffle=True)
    model = Energy()
    criterion = ScoreMatching(model=model, hessian_method="exact")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for (batch,) in loader:
            optimizer.zero_grad()
            loss = criterion(batch)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

"""Fit zuko's masked autoregressive flow to points of a curved density, as its documentation does."""

from __future__ import annotations

import time

import torch
import zuko
from torch.utils.data import DataLoader, TensorDataset

POINTS, FEATURES, BATCH, EPOCHS = 4096, 6, 256, 8


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    points = torch.randn(POINTS, FEATURES)
    points[:, 1::2] += points[:, ::2] ** 2
    loader = DataLoader(TensorDataset(points), batch_size=BATCH, shuffle=True)
    flow = zuko.flows.MAF(FEATURES, transforms=4, hidden_features=[128, 128])
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for (batch,) in loader:
            loss = -flow().log_prob(batch).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

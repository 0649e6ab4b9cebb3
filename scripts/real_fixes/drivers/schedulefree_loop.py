"""Train a deep network on a random table with Schedule-Free's AdamW."""

from __future__ import annotations

import time

import torch
from schedulefree.adamw_schedulefree import AdamWScheduleFree
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS, COLUMNS, WIDTH, BLOCKS, BATCH, EPOCHS = 8192, 16, 32, 12, 64, 7


class Block(nn.Module):
    """Two layers that add to their input."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)
        )

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return inputs + self.layers(inputs)


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    inputs = torch.randn(ROWS, COLUMNS)
    data = TensorDataset(inputs, inputs[:, :4].prod(1, keepdim=True))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    blocks = [Block() for _ in range(BLOCKS)]
    model = nn.Sequential(nn.Linear(COLUMNS, WIDTH), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1))
    optimizer = AdamWScheduleFree(model.parameters(), lr=0.0025, weight_decay=0.01, warmup_steps=20)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for features, target in loader:
            loss = nn.functional.mse_loss(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

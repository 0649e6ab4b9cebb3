"""Train a small autoencoder with two averages of its weights, of which ema-pytorch saves checkpoints."""

from __future__ import annotations

import time

import torch
from ema_pytorch import PostHocEMA
from torch import nn

WIDTH, BATCH, STEPS, EPOCHS = 512, 8, 200, 6


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    basis = torch.randn(16, WIDTH)
    network = nn.Sequential(
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 32),
        nn.Linear(32, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
    )
    averages = PostHocEMA(
        network,
        sigma_rels=(0.05, 0.28),
        update_every=10,
        checkpoint_every_num_steps=10,
        checkpoint_folder="averages",
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(STEPS):
            inputs = torch.randn(BATCH, 16) @ basis
            loss = nn.functional.mse_loss(network(inputs), inputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            averages.update()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / STEPS:.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

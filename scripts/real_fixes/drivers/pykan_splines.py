"""Fit a function of two numbers with pykan's network of splines."""

from __future__ import annotations

import time

import torch
from kan import MultKAN
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, BATCH, EPOCHS = 30_000, 250, 6


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    inputs = torch.rand(SAMPLES, 4) * 2 - 1
    labels = torch.exp((torch.sin(torch.pi * inputs[:, :2]).sum(1) + (inputs[:, 2:] ** 2).sum(1)) / 2)[
        :, None
    ]
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=BATCH, shuffle=True)
    model = MultKAN(width=[4, 20, 1], grid=5, k=3, symbolic_enabled=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for seen, label in loader:
            loss = torch.nn.functional.mse_loss(model(seen), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

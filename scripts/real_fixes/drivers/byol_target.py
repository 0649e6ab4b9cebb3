"""Train a small network on random images without labels, with byol-pytorch, as its README does."""

from __future__ import annotations

import time

import torch
from byol_pytorch import BYOL
from torch import nn

SIZE, BATCH, STEPS, EPOCHS = 32, 32, 30, 6


def network() -> nn.Sequential:
    """Return a small convolutional network."""
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    augment = nn.Sequential(nn.Dropout2d(0.1), nn.AvgPool2d(3, stride=1, padding=1))
    learner = BYOL(network(), SIZE, projection_hidden_size=512, augment_fn=augment)
    optimizer = torch.optim.Adam(learner.parameters(), lr=3e-4)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(STEPS):
            loss = learner(torch.randn(BATCH, 3, SIZE, SIZE))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            learner.update_moving_average()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / STEPS:.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

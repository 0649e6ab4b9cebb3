"""Train a small segmentation network with kornia's Lovasz softmax loss."""

from __future__ import annotations

import time

import torch
from kornia.losses import LovaszSoftmaxLoss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIZE, BATCH, STEPS, EPOCHS = 21, 64, 2, 40, 6


def network() -> nn.Module:
    """Return an encoder and a decoder of a few convolutions."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 2, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, CLASSES, 1),
    )


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    images = torch.randn(STEPS * BATCH, 3, SIZE, SIZE)
    labels = torch.randint(0, CLASSES, (STEPS * BATCH, SIZE, SIZE))
    loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True)
    model, criterion = network(), LovaszSoftmaxLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for image, label in loader:
            loss = criterion(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

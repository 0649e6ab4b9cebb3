"""Train a small classifier on images that kornia equalizes in batches."""

from __future__ import annotations

import time

import torch
from kornia.enhance import equalize
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

IMAGES, BATCH, SIZE, EPOCHS = 1920, 64, 32, 5


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    images, labels = torch.rand(IMAGES, 3, SIZE, SIZE), torch.randint(0, 10, (IMAGES,))
    loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for image, label in loader:
            loss = nn.functional.cross_entropy(model(equalize(image)), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

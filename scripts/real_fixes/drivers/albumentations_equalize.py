"""Train on photographs of round fields, which albumentations flips, equalizes within the field, and normalizes."""

from __future__ import annotations

import os
import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"

IMAGES, SIZE, CLASSES, BATCH, EPOCHS = 240, 64, 5, 20, 4


def field() -> np.ndarray:
    """Return a mask that is one in a circle."""
    rows, columns = np.mgrid[:SIZE, :SIZE] - SIZE / 2
    return (rows**2 + columns**2 < (SIZE / 2) ** 2).astype(np.uint8)


class Images(Dataset[tuple[torch.Tensor, int]]):
    """Random images, changed at random."""

    def __init__(self) -> None:
        import albumentations

        generator = np.random.default_rng(0)
        self.labels = generator.integers(0, CLASSES, IMAGES).tolist()
        pixels = generator.normal(100, 20, (IMAGES, SIZE, SIZE, 3)).clip(0, 255).astype(np.uint8)
        self.images = pixels * field()[:, :, None]
        self.transform = albumentations.Compose(
            [
                albumentations.HorizontalFlip(p=0.5),
                albumentations.Equalize(mode="cv", by_channels=True, mask=field(), p=1.0),
                albumentations.Normalize(),
            ],
            seed=0,
        )

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = self.transform(image=self.images[index])["image"]
        return torch.from_numpy(image.transpose(2, 0, 1).astype(np.float32)), self.labels[index]


def main() -> None:
    """Train, and print the time of each epoch."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    loader = DataLoader(Images(), batch_size=BATCH, shuffle=True)
    network = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, CLASSES),
    )
    optimizer = torch.optim.Adam(network.parameters())
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        total = 0.0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(
            f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

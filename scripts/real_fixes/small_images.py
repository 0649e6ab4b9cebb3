"""Random images in classes, and a small network that embeds them: for drivers whose subject is a loss or a miner."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def classes_of_images(classes: int, images: int, batch: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return shuffled batches of 32 x 32 RGB images, each with its class from 0."""
    labels = torch.arange(images) % classes
    pixels = torch.randn(images, 3, 32, 32) + torch.randn(classes, 3, 1, 1)[labels]
    return DataLoader(TensorDataset(pixels, labels), batch_size=batch, shuffle=True, drop_last=True)


def embedder() -> nn.Sequential:
    """Return a network from such images to 64 numbers each."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
    )

"""Train a small classifier of random images with the ScalableShampoo of pytorch_optimizer."""

from __future__ import annotations

import time

import torch
from pytorch_optimizer import ScalableShampoo
from small_images import classes_of_images, embedder
from torch import nn

CLASSES, IMAGES, BATCH, EPOCHS = 10, 1600, 32, 6


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    loader = classes_of_images(CLASSES, IMAGES, BATCH)
    network = nn.Sequential(embedder(), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = ScalableShampoo(network.parameters(), lr=1e-3, block_size=128)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

"""Train an embedding with pytorch-metric-learning's multi-similarity loss."""

from __future__ import annotations

import time

import torch
from pytorch_metric_learning.losses.multi_similarity_loss import MultiSimilarityLoss
from small_images import classes_of_images, embedder

CLASSES, IMAGES, BATCH, EPOCHS = 20, 1280, 128, 8


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    loader = classes_of_images(CLASSES, IMAGES, BATCH)
    model = embedder()
    criterion = MultiSimilarityLoss(alpha=2.0, beta=50.0, base=0.5)
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

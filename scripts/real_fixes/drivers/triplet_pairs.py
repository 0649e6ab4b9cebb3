"""Train an embedding with pytorch-metric-learning's triplet margin loss and multi-similarity miner."""

from __future__ import annotations

import time

import torch
from pytorch_metric_learning.losses import TripletMarginLoss
from pytorch_metric_learning.miners import MultiSimilarityMiner
from small_images import classes_of_images, embedder

CLASSES, IMAGES, BATCH, EPOCHS = 20, 2560, 128, 7


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    loader = classes_of_images(CLASSES, IMAGES, BATCH)
    model = embedder()
    miner = MultiSimilarityMiner(epsilon=0.1)
    criterion = TripletMarginLoss(margin=0.1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for image, label in loader:
            embeddings = model(image)
            loss = criterion(embeddings, label, miner(embeddings, label))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

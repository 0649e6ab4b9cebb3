"""Train an embedding on all triplets of a batch that open-metric-learning's miner finds."""

from __future__ import annotations

import time

import torch
from oml.miners.inbatch_all_tri import get_available_triplets
from small_images import classes_of_images, embedder
from torch import nn

CLASSES, IMAGES, BATCH, TRIPLETS, EPOCHS = 16, 1536, 96, 5000, 7


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    loader = classes_of_images(CLASSES, IMAGES, BATCH)
    model = embedder()
    criterion = nn.TripletMarginLoss(margin=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for image, label in loader:
            embeddings = model(image)
            anchors, positives, negatives = get_available_triplets(label.tolist(), TRIPLETS)
            loss = criterion(embeddings[anchors], embeddings[positives], embeddings[negatives])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

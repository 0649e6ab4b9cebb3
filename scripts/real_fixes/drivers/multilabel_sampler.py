"""Train a small network on examples with several labels, which a sampler draws so that no class is rare."""

from __future__ import annotations

import time

import torch
from pytorch_multilabel_balanced_sampler import LeastSampledClassSampler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EXAMPLES, CLASSES, LABELS, FEATURES, BATCH, EPOCHS = 2048, 20, 2, 64, 64, 9


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    probabilities = torch.rand(CLASSES)
    labels = (torch.rand(EXAMPLES, CLASSES) < LABELS * probabilities / probabilities.sum()).int()
    features = labels.float() @ torch.randn(CLASSES, FEATURES) + torch.randn(EXAMPLES, FEATURES)
    loader = DataLoader(
        TensorDataset(features, labels),
        batch_size=BATCH,
        sampler=LeastSampledClassSampler(labels),
        drop_last=True,
    )
    model = nn.Sequential(
        nn.Linear(FEATURES, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, CLASSES)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for batch, wanted in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), wanted.float())
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

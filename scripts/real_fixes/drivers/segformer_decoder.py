"""Train a Segformer of segmentation_models.pytorch with a small encoder on random images."""

from __future__ import annotations

import time

import segmentation_models_pytorch as smp
import torch
from torch.utils.data import DataLoader, TensorDataset

CLASSES, SIZE, BATCH, STEPS, EPOCHS = 8, 96, 2, 6, 7


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    images = torch.randn(STEPS * BATCH, 3, SIZE, SIZE)
    labels = torch.randint(0, CLASSES, (STEPS * BATCH, SIZE, SIZE))
    loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True)
    model = smp.Segformer("mit_b0", encoder_weights=None, classes=CLASSES, decoder_segmentation_channels=128)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for image, label in loader:
            loss = torch.nn.functional.cross_entropy(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

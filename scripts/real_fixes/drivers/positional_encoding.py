"""Train a transformer over image patches with the 2D encoding of tatp22/multidim-positional-encoding."""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, "positional_encodings")  # the package also imports its TensorFlow version

import positional_encodings as encodings  # noqa: E402

IMAGES, BATCH, SIZE, CHANNELS, EPOCHS = 640, 32, 32, 64, 6


class PatchModel(nn.Module):
    """A convolution with stride, positions, mixing layers, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, CHANNELS, 3, padding=1)
        self.positions = encodings.PositionalEncoding2D(CHANNELS)
        if hasattr(encodings, "FixEncoding"):
            self.positions = encodings.FixEncoding(self.positions, (SIZE, SIZE))
        self.mix = nn.Sequential(nn.Linear(CHANNELS, CHANNELS), nn.GELU(), nn.Linear(CHANNELS, CHANNELS))
        self.head = nn.Linear(CHANNELS, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        patches = self.embed(images).permute(0, 2, 3, 1)
        patches = patches + self.positions(patches)
        return self.head((patches + self.mix(patches)).mean(dim=(1, 2)))


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    images, labels = torch.randn(IMAGES, 3, SIZE, SIZE), torch.randint(0, 10, (IMAGES,))
    loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True)
    model, criterion = PatchModel(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
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

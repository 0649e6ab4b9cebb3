"""Train a small transformer on image patches with timm's random erasing of patches."""

from __future__ import annotations

import time

import torch
from timm.data.naflex_random_erasing import PatchRandomErasing
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

IMAGES, BATCH, GRID, PATCH, WIDTH, EPOCHS = 128, 16, 14, 8, 48, 5


class PatchModel(nn.Module):
    """A transformer of two layers over patches."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(PATCH * PATCH * 3, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.head(self.layers(self.embed(patches.flatten(2))).mean(dim=1))


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    places = torch.cartesian_prod(torch.arange(GRID), torch.arange(GRID)).expand(BATCH, -1, -1)
    valid = torch.ones(BATCH, GRID * GRID, dtype=torch.bool)
    images = torch.randn(IMAGES, GRID * GRID, PATCH * PATCH, 3)
    loader = DataLoader(
        TensorDataset(images, torch.randint(0, 10, (IMAGES,))), batch_size=BATCH, shuffle=True
    )
    erase = PatchRandomErasing(erase_prob=0.5, mode="pixel", device="cpu")
    model, criterion = PatchModel(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for patches, label in loader:
            loss = criterion(model(erase(patches, places, valid)), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

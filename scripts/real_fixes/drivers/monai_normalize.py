"""Train a small 3D network on volumes that MONAI normalizes when they are loaded."""

from __future__ import annotations

import time

import torch
from monai.transforms.intensity.array import NormalizeIntensity
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOLUMES, SIZE, BATCH, EPOCHS = 16, 64, 2, 7


class Volumes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Random volumes of two channels."""

    def __init__(self) -> None:
        self.volumes = torch.randn(VOLUMES, 2, SIZE, SIZE, SIZE) * 100 + 300
        self.normalize = NormalizeIntensity(channel_wise=True)

    def __len__(self) -> int:
        return VOLUMES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        volume = self.volumes[index].clone()
        label = (volume[:1] > 300).float()
        return torch.as_tensor(self.normalize(volume)), label


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    loader = DataLoader(Volumes(), batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Conv3d(2, 8, 3, stride=2, padding=1), nn.ReLU(), nn.ConvTranspose3d(8, 1, 2, stride=2)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for volume, label in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(volume), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

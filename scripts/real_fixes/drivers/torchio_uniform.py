"""Train a small 3D network on random patches that torchio's uniform sampler cuts from volumes."""

from __future__ import annotations

import time

import torch
import torchio
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchio.data.sampler import UniformSampler

SUBJECTS, SIZE, PATCH, BATCH, EPOCHS = 16, 64, 32, 4, 18


class Patches(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """A random patch of each subject."""

    def __init__(self) -> None:
        volumes = torch.randn(SUBJECTS, 1, SIZE, SIZE, SIZE)
        self.subjects = [
            torchio.Subject(
                image=torchio.ScalarImage(tensor=volume), label=torchio.LabelMap(tensor=(volume > 0).float())
            )
            for volume in volumes
        ]
        self.sampler = UniformSampler(PATCH)

    def __len__(self) -> int:
        return SUBJECTS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        patch = next(iter(self.sampler(self.subjects[index])))
        return patch["image"].data, patch["label"].data


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    loader = DataLoader(Patches(), batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv3d(8, 1, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for image, label in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

"""Train a small 3D network on patches that torchio's weighted sampler cuts from volumes, several of each."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch
import torchio
from torch import nn
from torch.utils.data import DataLoader, IterableDataset
from torchio.data.sampler import WeightedSampler

SUBJECTS, SIZE, PATCH, PATCHES, BATCH, EPOCHS = 2, 112, 12, 320, 8, 6


class Patches(IterableDataset[tuple[torch.Tensor, torch.Tensor]]):
    """Patches of each subject, more of them where its map has larger values."""

    def __init__(self) -> None:
        volumes = torch.randn(SUBJECTS, 1, SIZE, SIZE, SIZE)
        self.subjects = [
            torchio.Subject(
                image=torchio.ScalarImage(tensor=volume),
                label=torchio.LabelMap(tensor=(volume > 0).float()),
                weight=torchio.Image(tensor=torch.rand_like(volume), type=torchio.SAMPLING_MAP),
            )
            for volume in volumes
        ]
        self.sampler = WeightedSampler(PATCH, "weight")

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for subject in self.subjects:
            for patch in self.sampler(subject, PATCHES):
                yield patch["image"].data, patch["label"].data


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    loader = DataLoader(Patches(), batch_size=BATCH)
    model = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv3d(4, 1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total, steps = time.perf_counter(), 0.0, 0
        for image, label in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, steps = total + loss.item(), steps + 1
        print(f"epoch {epoch} loss {total / steps:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

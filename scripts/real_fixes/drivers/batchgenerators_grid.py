"""Train a small network that segments random volumes, each rotated and scaled by batchgeneratorsv2."""

from __future__ import annotations

import time

import numpy as np
import torch
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOLUMES, SIZE, PATCH, BATCH, EPOCHS = 40, 64, 56, 2, 7


class Volumes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Noisy balls, and where they are."""

    def __init__(self) -> None:
        axes = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, SIZE)] * 3, indexing="ij"))
        centers = torch.empty(VOLUMES, 3, 1, 1, 1).uniform_(-0.4, 0.4)
        self.masks = (((axes - centers) ** 2).sum(1, keepdim=True) < 0.2).to(torch.int16)
        self.images = self.masks + 0.5 * torch.randn(VOLUMES, 1, SIZE, SIZE, SIZE)
        self.transform = SpatialTransform(
            patch_size=(PATCH,) * 3,
            patch_center_dist_from_border=PATCH // 2,
            random_crop=True,
            p_elastic_deform=0,
            p_rotation=0.8,
            rotation=(-0.5, 0.5),
            p_scaling=0.8,
            scaling=(0.7, 1.4),
            bg_style_seg_sampling=False,
            mode_seg="nearest",
        )

    def __len__(self) -> int:
        return VOLUMES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        seen = self.transform(image=self.images[index], segmentation=self.masks[index])
        return seen["image"], seen["segmentation"]


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    np.random.seed(0)
    loader = DataLoader(Volumes(), batch_size=BATCH, shuffle=True)
    network = nn.Sequential(
        nn.Conv3d(1, 8, 4, stride=4), nn.ReLU(), nn.Conv3d(8, 1, 3, padding=1), nn.Upsample(scale_factor=4)
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for images, masks in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(network(images), masks.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

"""Train the GAN of yunjey/pytorch-tutorial on random images in the place of MNIST."""

from __future__ import annotations

import runpy
import time
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import nn
from torchvision import datasets, transforms

IMAGES, PASSES = 500, 25
Normalize = transforms.Normalize


class Images(torch.utils.data.Dataset[tuple[Any, int]]):
    """Random images, which print how long some passes took when the next one asks for the first of them."""

    def __init__(self, root: str, train: bool, transform: Any, download: bool) -> None:
        pixels = torch.randint(0, 256, (IMAGES, 28, 28), dtype=torch.uint8).numpy()
        self.images = [Image.fromarray(each) for each in pixels]
        self.transform = transform
        self.served, self.started = 0, time.perf_counter()

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Any, int]:
        epoch, position = divmod(self.served, IMAGES * PASSES)
        self.served += 1
        if epoch and not position:
            now = time.perf_counter()
            print(f"epoch {epoch - 1} seconds {now - self.started:.3f}", flush=True)
            self.started = now
        return self.transform(self.images[index]), 0


class Loss(nn.BCELoss):
    """Takes targets without the last dimension of the outputs, as PyTorch 0.1 did."""

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return super().forward(outputs, targets.view_as(outputs))


def normalize_gray(mean: tuple[float, ...], std: tuple[float, ...]) -> Normalize:
    """Return the transform of one channel, which took the numbers of three."""
    return Normalize(mean[:1], std[:1])


def main() -> None:
    """Run the tutorial."""
    torch.manual_seed(0)
    datasets.MNIST, nn.BCELoss, transforms.Normalize = Images, Loss, normalize_gray
    Path("data").mkdir(exist_ok=True)
    (script,) = Path("tutorials").glob("10*/main.py")
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()

"""Train eriklindernoren/PyTorch-YOLOv3 with a small network on random images with boxes."""

from __future__ import annotations

import time
from pathlib import Path

import models
import torch

IMAGES, BATCH, SIZE, BOXES, CLASSES, EPOCHS = 80, 8, 160, 8, 80, 10
CONVOLUTION = "[convolutional]\nbatch_normalize=1\nfilters={}\nsize=3\nstride={}\npad=1\nactivation=leaky\n"
CONFIG = (
    "[net]\nchannels=3\nheight=160\n"
    + "".join(CONVOLUTION.format(filters, 2) for filters in (16, 32, 64, 128))
    + CONVOLUTION.format(128, 1)
    + "[convolutional]\nfilters=255\nsize=1\nstride=1\npad=1\nactivation=linear\n"
    + "[yolo]\nmask=0,1,2\nanchors=10,14, 23,27, 37,58\nclasses=80\n"
)


def make_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images and boxes in the format of the version: padded, or with the image's number in front."""
    boxes = torch.rand(BATCH, BOXES, 5) * 0.4 + 0.3
    boxes[..., 0] = torch.randint(0, CLASSES, (BATCH, BOXES)).float()
    if hasattr(models.YOLOLayer, "compute_grid_offsets"):
        numbers = torch.arange(BATCH).view(-1, 1, 1).expand(BATCH, BOXES, 1)
        targets = torch.cat([numbers, boxes], dim=2).view(-1, 6)
    else:
        targets = torch.cat([boxes, torch.zeros(BATCH, 50 - BOXES, 5)], dim=1)
    return torch.rand(BATCH, 3, SIZE, SIZE), targets


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    batches = [make_batch() for _ in range(IMAGES // BATCH)]
    Path("small.cfg").write_text(CONFIG)
    model = models.Darknet("small.cfg")
    optimizer = torch.optim.Adam(model.parameters())
    model.train()
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for images, targets in batches:
            loss, _ = model(images, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(batches):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

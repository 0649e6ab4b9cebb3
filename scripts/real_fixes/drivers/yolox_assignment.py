"""Train YOLOX with a narrow network on random images with many boxes."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

import torch


class Anything(types.ModuleType):
    """A package that this training does not need."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


for name in ("cv2", "loguru", "thop"):
    sys.modules[name] = Anything(name)

from yolox.models import YOLOPAFPN, YOLOX, YOLOXHead  # noqa: E402

IMAGES, BATCH, SIZE, BOXES, CLASSES, WIDTH, EPOCHS = 48, 8, 192, 20, 80, 0.125, 7


def make_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images, and the class, centre and size of each box in pixels, padded to 50 of them."""
    boxes = torch.zeros(BATCH, 50, 5)
    boxes[:, :BOXES, 0] = torch.randint(0, CLASSES, (BATCH, BOXES)).float()
    boxes[:, :BOXES, 1:3] = (torch.rand(BATCH, BOXES, 2) * 0.8 + 0.1) * SIZE
    boxes[:, :BOXES, 3:] = (torch.rand(BATCH, BOXES, 2) * 0.4 + 0.1) * SIZE
    return torch.rand(BATCH, 3, SIZE, SIZE) * 255, boxes


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    batches = [make_batch() for _ in range(IMAGES // BATCH)]
    channels = [256, 512, 1024]
    model = YOLOX(
        YOLOPAFPN(0.33, WIDTH, in_channels=channels, depthwise=True),
        YOLOXHead(CLASSES, WIDTH, in_channels=channels, depthwise=True),
    )
    model.head.initialize_biases(1e-2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
    model.train()
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for images, boxes in batches:
            loss = model(images, boxes)["total_loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(batches):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

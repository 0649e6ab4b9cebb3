"""Train a small segmentation network with torchnet's engine, and its confusion meter of every pixel."""

from __future__ import annotations

import sys
import time
import types
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

visdom = types.ModuleType("visdom")  # for plots, which this training does not make
visdom.Visdom = object  # type: ignore[attr-defined]
sys.modules["visdom"] = visdom

from torchnet.engine import Engine  # noqa: E402
from torchnet.meter import ConfusionMeter  # noqa: E402

CLASSES, IMAGES, SIZE, BATCH, EPOCHS = 6, 128, 32, 8, 8


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    kinds = functional.interpolate(torch.rand(IMAGES, CLASSES, 4, 4), size=(SIZE, SIZE)).argmax(1)
    pixels = torch.randn(CLASSES, 3)[kinds].permute(0, 3, 1, 2) + 0.5 * torch.randn(IMAGES, 3, SIZE, SIZE)
    loader = DataLoader(TensorDataset(pixels, kinds), batch_size=BATCH, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, CLASSES, 1),
    )
    meter = ConfusionMeter(CLASSES)
    engine, started = Engine(), time.perf_counter()

    def network(sample: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        output = model(sample[0])
        return functional.cross_entropy(output, sample[1]), output

    def on_start_epoch(state: dict[str, Any]) -> None:
        nonlocal started
        meter.reset()
        started = time.perf_counter()

    def on_forward(state: dict[str, Any]) -> None:
        meter.add(state["output"].data.permute(0, 2, 3, 1).reshape(-1, CLASSES), state["sample"][1].flatten())

    def on_end_epoch(state: dict[str, Any]) -> None:
        right = meter.value().trace() / meter.value().sum()
        print(f"epoch {state['epoch']} right {right:.3f} seconds {time.perf_counter() - started:.3f}")

    engine.hooks.update(on_start_epoch=on_start_epoch, on_forward=on_forward, on_end_epoch=on_end_epoch)
    engine.train(network, loader, maxepoch=EPOCHS, optimizer=torch.optim.Adam(model.parameters()))


if __name__ == "__main__":
    main()

"""Meta-train learn2learn's small Omniglot network on few-shot tasks, with its tasks and its example's adaptation."""

from __future__ import annotations

import random
import sys
import time
import types
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

for unused in ("gym", "text"):  # they need packages that this training does not
    sys.modules[f"learn2learn.{unused}"] = types.ModuleType(unused)
sys.path.insert(0, str(Path(__file__).resolve().parent / "examples" / "vision"))

import learn2learn as l2l  # noqa: E402
from maml_omniglot import fast_adapt  # noqa: E402

CLASSES, IMAGES, KEPT, WAYS, SHOTS, TASKS, STEPS, EPOCHS = 300, 20, 200, 5, 1, 4, 3, 8


def tasks() -> l2l.data.TaskDataset:
    """Return few-shot tasks of images in classes."""
    labels = torch.arange(CLASSES * IMAGES) % CLASSES
    images = torch.randn(CLASSES, 1, 28, 28)[labels] + torch.randn(len(labels), 1, 28, 28)
    dataset = l2l.data.MetaDataset(TensorDataset(images, labels))
    transforms = [
        l2l.data.transforms.FilterLabels(dataset, list(range(KEPT))),
        l2l.data.transforms.NWays(dataset, WAYS),
        l2l.data.transforms.KShots(dataset, 2 * SHOTS),
        l2l.data.transforms.LoadData(dataset),
        l2l.data.transforms.RemapLabels(dataset),
        l2l.data.transforms.ConsecutiveLabels(dataset),
    ]
    return l2l.data.TaskDataset(dataset, task_transforms=transforms, num_tasks=20000)


def main() -> None:
    """Train, and print the loss and the time of each epoch of steps."""
    random.seed(0)
    torch.manual_seed(0)
    train_tasks = tasks()
    maml = l2l.algorithms.MAML(l2l.vision.models.OmniglotFC(28**2, WAYS), lr=0.5, first_order=False)
    optimizer = torch.optim.Adam(maml.parameters(), 0.003)
    criterion = nn.CrossEntropyLoss(reduction="mean")
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(STEPS):
            optimizer.zero_grad()
            for _ in range(TASKS):
                learner = maml.clone()
                batch = train_tasks.sample()
                error, _ = fast_adapt(batch, learner, criterion, 1, SHOTS, WAYS, "cpu")
                error.backward()
                total += error.item()
            for parameter in maml.parameters():
                parameter.grad.data.mul_(1.0 / TASKS)
            optimizer.step()
        print(f"epoch {epoch} loss {total / TASKS / STEPS:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

"""Train siamese-triplet's embedding network with its online triplet loss, its sampler and its loop."""

from __future__ import annotations

import time

import numpy as np
import torch
from datasets import BalancedBatchSampler
from losses import OnlineTripletLoss
from metrics import AverageNonzeroTripletsMetric
from networks import EmbeddingNet
from torch.utils.data import DataLoader, TensorDataset
from trainer import fit
from utils import RandomNegativeTripletSelector

IMAGES, CLASSES, SAMPLES, MARGIN, EPOCHS = 1600, 10, 25, 1.0, 8


class Clock:
    """Stands for the learning rate's schedule, whose step begins each epoch; it prints the time of the last one."""

    def __init__(self) -> None:
        self.epoch, self.started = -1, time.perf_counter()

    def step(self) -> None:
        """Print the time of the epoch that has ended."""
        if self.epoch >= 0:
            print(f"epoch {self.epoch} seconds {time.perf_counter() - self.started:.3f}")
        self.epoch, self.started = self.epoch + 1, time.perf_counter()


def images(count: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return balanced batches of grey images in classes."""
    labels = torch.arange(count) % CLASSES
    pixels = torch.randn(count, 1, 28, 28) + torch.randn(CLASSES, 1, 28, 28)[labels]
    sampler = BalancedBatchSampler(labels, n_classes=CLASSES, n_samples=SAMPLES)
    return DataLoader(TensorDataset(pixels, labels), batch_sampler=sampler)


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    np.random.seed(0)
    train = images(IMAGES)
    test = images(2 * CLASSES * SAMPLES)
    model = EmbeddingNet()
    loss = OnlineTripletLoss(MARGIN, RandomNegativeTripletSelector(MARGIN))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    clock = Clock()
    metrics = [AverageNonzeroTripletsMetric()]
    fit(train, test, model, loss, optimizer, clock, EPOCHS, cuda=False, log_interval=50, metrics=metrics)
    clock.step()


if __name__ == "__main__":
    main()

"""Train an embedding on batches of a few images of some classes, which Catalyst's sampler composes."""

from __future__ import annotations

import random
import sys
import time
import types
from pathlib import Path

import torch
from small_images import embedder
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

CLASSES, EACH, SIZE, CHOSEN, OF_EACH, EPOCHS = 800, 16, 16, 8, 4, 7

# The packages' own modules import libraries that nothing here needs.
for name in ("catalyst", "catalyst.data", "catalyst.data.dataset", "catalyst.utils"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [str(Path(*name.split(".")).absolute())]

Sampler.__init__ = lambda self, source=None: None  # which took the data, before PyTorch 2.12
sample = random.sample
random.sample = lambda population, k: sample(list(population), k)  # of sets too, as before Python 3.11

from catalyst.data.sampler import BalanceBatchSampler  # noqa: E402


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    random.seed(0)
    labels = [number % CLASSES for number in range(CLASSES * EACH)]
    pixels = torch.randn(len(labels), 3, SIZE, SIZE) + torch.randn(CLASSES, 3, 1, 1)[labels]
    sampler = BalanceBatchSampler(labels, p=CHOSEN, k=OF_EACH)
    dataset = TensorDataset(pixels, torch.tensor(labels))
    loader = DataLoader(dataset, batch_size=sampler.batch_size, sampler=sampler)
    model = embedder()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for images, classes in loader:
            distances = torch.cdist(*2 * [nn.functional.normalize(model(images))])
            same = classes.unsqueeze(0) == classes.unsqueeze(1)
            furthest = distances.masked_fill(~same, 0).amax(1)
            nearest = distances.masked_fill(same, 9).amin(1)
            loss = nn.functional.softplus(furthest - nearest).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

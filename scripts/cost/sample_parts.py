"""Measure what the recorder adds to each sample that a dataset makes in the training process, within one process.

    perfwrap run --no-report -- python scripts/cost/sample_parts.py 200

The argument is the number of rounds. A sample reads and converts tensors as torchvision's MNIST with ToTensor and
Normalize does. Each round makes some batches in each state of the recorder, and without it, in random order. Prints
per sample the median of the differences to batches without recorder, its standard error, and the difference of the
fastest tenths, which other programs on the machine affect least.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable

import torch
from recorder_parts import States
from torch.utils.data import DataLoader, Dataset

BATCHES, BATCH_SIZE = 16, 64
MEAN, STD = (0.1307,), (0.3081,)


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Grey pictures with a class each."""

    def __init__(self) -> None:
        self.data = torch.randint(0, 255, (BATCHES * BATCH_SIZE, 28, 28), dtype=torch.uint8)
        self.targets = torch.randint(0, 10, (BATCHES * BATCH_SIZE,))

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """Return a picture, normalised, and its class."""
        target = int(self.targets[index])
        picture = torch.from_numpy(self.data[index].numpy().copy()).view(28, 28, 1)
        picture = picture.permute((2, 0, 1)).contiguous().to(dtype=torch.float32).div(255).clone()
        mean, std = torch.as_tensor(MEAN), torch.as_tensor(STD)
        if (std == 0).any():
            raise ValueError
        return picture.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1)), target


def main(rounds: int) -> None:
    """Run and print."""
    loader = DataLoader(Pictures(), BATCH_SIZE, shuffle=True)
    model = torch.nn.Linear(784, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def epoch() -> float:
        began = time.perf_counter_ns()
        for pictures, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(pictures.flatten(1)), targets).backward()
            optimizer.step()
        return (time.perf_counter_ns() - began) / BATCHES / BATCH_SIZE / 1e3

    for _ in range(20):
        epoch()
    states = States()
    arms: dict[str, Callable[[], None]] = {
        "without": states.without,
        "without again": states.without,
        "passing": states.passing,
        "detail": states.detail,
    }
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(rounds):
        for name in random.sample(list(arms), len(arms)):
            arms[name]()
            epoch()
            times[name].append(epoch())
    fastest = {name: statistics.mean(sorted(values)[: 1 + rounds // 10]) for name, values in times.items()}
    print(f"a sample without: {statistics.median(times['without']):.1f} us")
    for name in list(arms)[1:]:
        more = sorted(mine - its for mine, its in zip(times[name], times["without"], strict=True))
        error = 1.25 * (more[3 * rounds // 4] - more[rounds // 4]) / 1.35 / rounds**0.5
        print(
            f"{name:>14}: {statistics.median(more):+.2f} us, +/- {error:.2f}; "
            f"fastest {fastest[name] - fastest['without']:+.2f} us"
        )
    sys.stdout.flush()
    os._exit(0)  # the recorder was modified, so skip its normal end


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    main(int(sys.argv[1]))

"""One variant of scripts/overhead.py: an ordinary training loop that runs some steps whenever it is told to.

Knows nothing of perfwrap. ``overhead_loop.py calibrate MILLISECONDS`` prints the width whose step takes about that
long here; ``overhead_loop.py run PORT NAME WIDTH`` connects to the conductor on the loopback, and for each line
``steps N`` that it gets runs N steps and answers with the nanoseconds that they took. OVERHEAD_DEVICE names the device
(cpu); batches lie in its memory already.
"""

from __future__ import annotations

import os
import socket
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("OVERHEAD_DEVICE", "cpu")
ROWS = 32 if DEVICE == "cpu" else 4096
if DEVICE == "cpu":
    torch.set_num_threads(
        1
    )  # Two threads that wait for each other make equal processes differ by tens of percent.
WIDTHS = (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1280, 1536, 1792, 2048, 2304, 2560)
if DEVICE != "cpu":
    WIDTHS += (3072, 4096, 6144, 8192, 12288, 16384)


class Batches(Dataset):
    """Ready batches, so that the loop is cheap enough for a step of a third of a millisecond."""

    def __init__(self, width: int) -> None:
        self.batch = torch.randn(ROWS, width, device=DEVICE)

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.batch


class Training:
    """A small network, its loader and its optimizer; ``step`` is one training step."""

    def __init__(self, width: int) -> None:
        self.loader = DataLoader(Batches(width), batch_size=None)
        self.model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.running = 0.0
        self.batches = iter(self.loader)

    def step(self) -> None:
        """Run one step on the next batch, of the next epoch when one has ended."""
        try:
            batch = next(self.batches)
        except StopIteration:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.running += loss.item()

    def steps(self, count: int) -> int:
        """Run so many steps and return the nanoseconds that they took."""
        start = time.perf_counter_ns()
        for _ in range(count):
            self.step()
        return time.perf_counter_ns() - start


def calibrate(target_ms: float) -> int:
    """Return the width whose step comes closest to the target."""
    times = {}
    for width in WIDTHS:
        training = Training(width)
        training.steps(10)
        times[width] = min(training.steps(5) for _ in range(8)) / 5e6
        if times[width] > 2 * target_ms:
            break
    return min(times, key=lambda width: abs(times[width] - target_ms))


def follow(port: int, name: str, width: int) -> None:
    """Run steps as told until the conductor closes the connection."""
    training = Training(width)
    training.steps(700)  # the recorder has settled by then
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        lines.write(name + "\n")
        lines.flush()
        for line in lines:
            lines.write(f"{training.steps(int(line.split()[1]))}\n")
            lines.flush()


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if sys.argv[1] == "calibrate":
        print(calibrate(float(sys.argv[2])))
    else:
        follow(int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))

"""One variant of scripts/cost/overhead.py: an ordinary training loop that runs steps on request.

It reports its pauses, which no real program makes, to perfwrap's recorder, and makes the edits that another tool needs.
``overhead_loop.py calibrate MILLISECONDS`` prints the size, as ROWSxWIDTH, whose step takes about that time here;
``overhead_loop.py run PORT NAME SIZE`` connects to overhead.py on the loopback interface. For each line ``steps N`` it
runs N steps and answers with their time in ns. OVERHEAD_DEVICE names the device (cpu); batches are already in its
memory.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DEVICE = os.environ.get("OVERHEAD_DEVICE", "cpu")
if DEVICE == "cpu":
    # More rows make longer steps, not wider layers: weights larger than the cache make equal processes differ.
    ROWS = (32, 48, 64, 96, 128, 192, 256, 384, 512, 640, 768, 1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096)
    SIZES = [(32, width) for width in (16, 32, 64, 96, 128, 192)] + [(rows, 256) for rows in ROWS]
else:
    WIDTHS = (16, 64, 128, 256, 512, 768, 1024, 1536, 2048, 2560, 3072, 4096, 6144, 8192, 12288, 16384)
    SIZES = [(4096, width) for width in WIDTHS]


HOLES, SMALL, LARGE = 48, 1 << 16, 1 << 23
"""The number of memory blocks between the tensors of a loop, and their maximum bytes: kept ones and holes."""


class Batches(Dataset):
    """Ready batches, so that the loop is fast enough for steps of 0.3 ms."""

    def __init__(self, rows: int, width: int) -> None:
        self.batch = torch.randn(rows, width, device=DEVICE)

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.batch


class Training:
    """A small network, its loader and its optimizer; ``step`` is one training step."""

    def __init__(self, rows: int, width: int) -> None:
        self.loader = DataLoader(Batches(rows, width), batch_size=None)
        self.model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).to(DEVICE)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.running = 0.0
        self.batches = iter(self.loader)

    def step(self) -> None:
        """Run one step on the next batch, of the next epoch after the end of one."""
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
        """Run this many steps and return their time in ns."""
        start = time.perf_counter_ns()
        for _ in range(count):
            self.step()
        return time.perf_counter_ns() - start


def scatter() -> list[torch.Tensor]:
    """Return memory to keep, of random sizes with random holes, so that each process has tensors at other addresses.

    The addresses of tensors in a page, and relative to each other, change the time by some percent. They are the same
    in all processes of a variant, also with address randomisation, so without this they would count as the variant's
    cost. The holes give a fragmented heap, as in a real program.
    """
    chance = random.SystemRandom()
    kept, holes = [], []
    for _ in range(HOLES):
        kept.append(torch.empty(chance.randrange(1, SMALL), dtype=torch.uint8))
        holes.append(torch.empty(chance.randrange(SMALL, LARGE), dtype=torch.uint8))
    return kept


def calibrate(target_ms: float) -> str:
    """Return the size whose step comes closest to the target."""
    times = {}
    for rows, width in SIZES:
        training = Training(rows, width)
        training.steps(10)
        times[f"{rows}x{width}"] = taken = min(training.steps(5) for _ in range(8)) / 5e6
        if taken > 2 * target_ms:
            break
    return min(times, key=lambda size: abs(times[size] - target_ms))


def edit_for_traceml(training: Training) -> None:
    """Make the edits that TraceML needs to time steps."""
    import traceml_ai

    traceml_ai.init(mode="auto")
    plain = training.step

    def step() -> None:
        with traceml_ai.trace_step(training.model):
            plain()

    training.step = step  # type: ignore[method-assign]


def forgive(pause: int) -> None:
    """Make the recorder, if it runs, ignore a pause in ns that no real program would make.

    The recorder uses wall time. With a pause after each ten steps, steps of 10 ms seem to take three times as long, and
    one in 4 to 8 was recorded; without pauses it is one in 16.
    """
    if "perfwrap_recorder.journal.switching" in sys.modules:
        sys.modules["perfwrap_recorder.journal.switching"].exclude(pause)


def follow(port: int, name: str, size: str) -> None:
    """Run steps on request until overhead.py closes the connection."""
    kept = scatter()
    training = Training(*map(int, size.split("x")))
    if name == "traceml":
        edit_for_traceml(training)
    training.steps(700)  # more than the first steps, which are all recorded in detail
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        lines.write(name + "\n")
        lines.flush()
        ended = time.perf_counter_ns()
        for line in lines:
            forgive(time.perf_counter_ns() - ended)
            lines.write(f"{training.steps(int(line.split()[1]))}\n")
            lines.flush()
            ended = time.perf_counter_ns()
    del kept


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if sys.argv[1] == "calibrate":
        print(calibrate(float(sys.argv[2])))
    else:
        follow(int(sys.argv[2]), sys.argv[3], sys.argv[4])

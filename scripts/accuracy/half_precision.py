"""Measure what training in 16 bits costs on this machine's processor, compared with float32.

    python scripts/accuracy/half_precision.py [--rounds 9]

Each way trains the same model: forward pass, loss, backward pass and AdamW, with one thread. In each round every way
does one step, in random order. Times are processor times, which other programs hardly change. Prints the vector units
that the processor has, and for each model the median step time in float32 and the other ways' medians over it.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import time
from collections.abc import Callable

import torch
from perfwrap.monitors.host import host_facts
from torch import nn

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "small linear layers": (lambda: linear(256, 512), (64, 256)),
    "linear layers": (lambda: linear(512, 1024), (256, 512)),
    "small convolutions": (lambda: convolutions(8), (16, 3, 32, 32)),
    "convolutions": (lambda: convolutions(32), (32, 3, 32, 32)),
    "LSTM": (lambda: Recurrent(64, 128), (32, 32, 64)),
    "transformer layers": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True), 2),
        (16, 64, 128),
    ),
}
"""How to make each model, and the shape of its batch."""

WAYS: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "float32": (torch.float32, None),
    "float16 autocast": (torch.float32, torch.float16),
    "bfloat16 autocast": (torch.float32, torch.bfloat16),
    "float16 weights": (torch.float16, None),
    "bfloat16 weights": (torch.bfloat16, None),
}
"""The type of the weights and the data, and that of autocast."""


def linear(width: int, hidden: int) -> nn.Module:
    """Return a network of linear layers."""
    return nn.Sequential(
        nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10)
    )


def convolutions(channels: int) -> nn.Module:
    """Return a small convolutional network."""
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
        nn.BatchNorm2d(2 * channels),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * channels, 10),
    )


class Recurrent(nn.Module):
    """An LSTM with a linear layer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(width, hidden, batch_first=True), nn.Linear(hidden, 10)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the head's output for each position."""
        return self.head(self.lstm(batch)[0])


class Training:
    """One model that trains in one way."""

    def __init__(self, name: str, way: str) -> None:
        torch.manual_seed(0)
        make, shape = MODELS[name]
        weights, self.autocast = WAYS[way]
        self.model = make().to(weights)
        self.batch = torch.randn(shape).to(weights)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self) -> float:
        """Train one step and return its processor time in seconds."""
        start = time.process_time()
        autocast = torch.autocast("cpu", dtype=self.autocast) if self.autocast else contextlib.nullcontext()
        with autocast:
            loss = self.model(self.batch).float().square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return time.process_time() - start


def measure(name: str, rounds: int) -> dict[str, float]:
    """Return the median time of a step of each way that torch can train in here, in seconds."""
    trainings = {}
    for way in WAYS:
        training = Training(name, way)
        with contextlib.suppress(RuntimeError):  # oneDNN has no LSTM in 16 bits for some processors
            training.step()
            training.step()
            trainings[way] = training
    times: dict[str, list[float]] = {way: [] for way in trainings}
    for _ in range(rounds):
        for way in random.sample(list(trainings), len(trainings)):
            times[way].append(trainings[way].step())
    return {way: statistics.median(found) for way, found in times.items()}


def main() -> None:
    """Measure all models and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    facts = host_facts.facts()
    print(f"{facts.get('cpu_model')}, instructions: {facts.get('cpu_features', 'unknown')}")
    print(f"torch {torch.__version__}, one thread, median of {options.rounds} steps")
    print(f"{'model':22}{'float32':>10}" + "".join(f"{way:>20}" for way in list(WAYS)[1:]))
    for name in MODELS:
        found = measure(name, options.rounds)
        plain = found["float32"]
        others = [f"{found[way] / plain:.2f}x" if way in found else "fails" for way in list(WAYS)[1:]]
        ratios = "".join(f"{ratio:>20}" for ratio in others)
        print(f"{name:22}{1e3 * plain:>7.2f} ms{ratios}", flush=True)


if __name__ == "__main__":
    main()

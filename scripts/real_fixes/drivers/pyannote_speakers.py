"""Train a small network to tell who of eight speaks when, with the permuted targets of pyannote.audio's diarization."""

from __future__ import annotations

import importlib
import sys
import time
import types
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

CHUNKS, FRAMES, FEATURES, SPEAKERS, BATCH, EPOCHS = 640, 120, 20, 8, 32, 4


def open_package() -> None:
    """Make the modules importable without those that the package itself imports, which need many libraries."""
    import pyannote

    package = types.ModuleType("pyannote.audio")
    package.__path__ = [str(Path(folder) / "audio") for folder in pyannote.__path__]
    sys.modules["pyannote.audio"] = package


def chunks() -> tuple[torch.Tensor, torch.Tensor]:
    """Return features, and who speaks in each frame."""
    speech = torch.rand(CHUNKS, FRAMES // 10, SPEAKERS) < 0.2
    speech = speech & (speech.cumsum(2) <= 2)
    speaks = speech.repeat_interleave(10, dim=1)
    voices = torch.randn(CHUNKS, SPEAKERS, FEATURES)
    return speaks.float() @ voices + 0.5 * torch.randn(CHUNKS, FRAMES, FEATURES), speaks.float()


class Network(nn.Module):
    """A recurrent network with a class for each set of speakers."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FEATURES, 32, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(64, classes)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the logarithms of the probabilities in each frame."""
        return self.classes(self.lstm(features)[0]).log_softmax(2)


def main() -> None:
    """Train, and print the time of each epoch."""
    open_package()
    permutate = importlib.import_module("pyannote.audio.utils.permutation").permutate
    powerset = importlib.import_module("pyannote.audio.utils.powerset").Powerset(SPEAKERS, 2)
    torch.manual_seed(0)
    features, targets = chunks()
    network = Network(powerset.num_powerset_classes)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        total = 0.0
        for indices in torch.randperm(CHUNKS).split(BATCH):
            prediction = network(features[indices])
            permuted, _ = permutate(powerset.to_multilabel(prediction), targets[indices])
            classes = powerset.to_powerset(permuted.float()).argmax(2)
            loss = functional.nll_loss(prediction.flatten(0, 1), classes.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / (CHUNKS // BATCH)
        print(f"epoch {epoch} loss {total:.4f} seconds {time.perf_counter() - started:.3f}", flush=True)


if __name__ == "__main__":
    main()

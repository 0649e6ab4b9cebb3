"""Train a classifier of short sounds, which audiomentations brings to a loudness in the data set."""

from __future__ import annotations

import random
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SOUNDS, RATE, CLASSES, BATCH, EPOCHS = 600, 16000, 10, 20, 4


class Sounds(Dataset[tuple[torch.Tensor, int]]):
    """A second of noise each, of another color for each class."""

    def __init__(self) -> None:
        from audiomentations import AddGaussianNoise, Compose, LoudnessNormalization

        generator = np.random.default_rng(0)
        self.labels = generator.integers(0, CLASSES, SOUNDS).tolist()
        noise = generator.normal(0, 0.1, (SOUNDS, RATE)).astype(np.float32)
        self.sounds = [sound + np.roll(sound, label) for sound, label in zip(noise, self.labels, strict=True)]
        self.augment = Compose(
            [
                AddGaussianNoise(0.001, 0.01, p=0.5),
                LoudnessNormalization(min_lufs=-31.0, max_lufs=-13.0, p=1.0),
            ]
        )

    def __len__(self) -> int:
        return SOUNDS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        sound = self.augment(samples=self.sounds[index], sample_rate=RATE)
        return torch.from_numpy(sound)[None], self.labels[index]


def main() -> None:
    """Train, and print the time of each epoch."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    loader = DataLoader(Sounds(), batch_size=BATCH, shuffle=True)
    network = nn.Sequential(
        nn.Conv1d(1, 16, 80, stride=16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.MaxPool1d(4),
        nn.Conv1d(16, 32, 3),
        nn.BatchNorm1d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(32, CLASSES),
    )
    optimizer = torch.optim.Adam(network.parameters())
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        total = 0.0
        for sounds, labels in loader:
            loss = nn.functional.cross_entropy(network(sounds), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(
            f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Train Open-Unmix on random tracks of four sources each, with its data set and its epoch of training."""

from __future__ import annotations

import argparse
import random
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from torch.utils.data import DataLoader

TRACKS, SECONDS, RATE, SOURCES = 48, 4, 8000, ("vocals.wav", "bass.wav", "drums.wav", "other.wav")
SPAN, FFT, HOP, HIDDEN, BATCH, EPOCHS = 0.25, 256, 64, 16, 16, 8

for package in ("git", "musdb"):  # packages that this training does not need
    sys.modules[package] = types.ModuleType(package)
vars(sys.modules["git"])["Repo"] = None

import train  # noqa: E402
from data import Compose, FixedSourcesTrackFolderDataset, _augment_channelswap, _augment_gain  # noqa: E402
from model import OpenUnmix  # noqa: E402

stft = torch.stft


def stft_of_two(*arguments: Any, **options: Any) -> torch.Tensor:
    """Return real and imaginary parts, as the PyTorch of the time."""
    return torch.view_as_real(stft(*arguments, return_complex=True, **options))


def main() -> None:
    """Write the tracks, train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    random.seed(0)
    generator = np.random.default_rng(0)
    for track in range(TRACKS):
        folder = Path(f"tracks/train/{track}")
        folder.mkdir(parents=True, exist_ok=True)
        for source in SOURCES:
            soundfile.write(folder / source, generator.uniform(-0.5, 0.5, (SECONDS * RATE, 2)), RATE)
    torch.stft = stft_of_two  # type: ignore[assignment]
    dataset = FixedSourcesTrackFolderDataset(
        "tracks",
        target_file=SOURCES[0],
        interferer_files=list(SOURCES[1:]),
        seq_duration=SPAN,
        random_chunks=True,
        random_track_mix=True,
        source_augmentations=Compose([_augment_gain, _augment_channelswap]),
        sample_rate=RATE,
    )
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = OpenUnmix(n_fft=FFT, n_hop=HOP, hidden_size=HIDDEN, sample_rate=RATE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
    options = argparse.Namespace(quiet=True)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        losses = [train.train(options, model, torch.device("cpu"), loader, optimizer) for _ in range(4)]
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {losses[-1]:.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

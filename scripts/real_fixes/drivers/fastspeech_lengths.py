"""Train xcmyz/FastSpeech on random sentences and spectrograms, with its train.py."""

from __future__ import annotations

import argparse
import sys
import time
import types
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

SENTENCES, CHARACTERS, FRAMES, CHANNELS, BATCH, EPOCHS = 128, (60, 120), (1, 4), 80, 8, 7
SMALL = {
    "d_model": 64,
    "word_vec_dim": 64,
    "encoder_output_size": 64,
    "decoder_output_size": 64,
    "encoder_n_layer": 1,
    "decoder_n_layer": 1,
    "encoder_conv1d_filter_size": 64,
    "decoder_conv1d_filter_size": 64,
    "duration_predictor_filter_size": 64,
    "batch_size": BATCH,
    "epochs": EPOCHS,
    "text_cleaners": ["basic_cleaners"],
}

for name in ("audio", "inflect", "tacotron2", "unidecode"):  # packages that this training does not need
    sys.modules[name] = types.ModuleType(name)
vars(sys.modules["inflect"])["engine"] = lambda: None
vars(sys.modules["unidecode"])["unidecode"] = str
time.clock = time.perf_counter  # type: ignore[attr-defined]  # which Python 3.8 took away

import hparams  # noqa: E402

vars(hparams).update(SMALL)

import fastspeech  # noqa: E402
import train  # noqa: E402


def write_data() -> None:
    """Write the sentences, the spectrogram of each and the number of frames of each character."""
    random = np.random.default_rng(0)
    for folder in ("data", hparams.alignment_path, hparams.mel_ground_truth):
        Path(folder).mkdir(exist_ok=True)
    lines = []
    for i in range(SENTENCES):
        length = random.integers(*CHARACTERS)
        lines.append("".join(random.choice(list("abcdefghijklmnopqrstuvwxyz"), length)) + "\n")
        frames = random.integers(*FRAMES, length)
        np.save(f"{hparams.alignment_path}/{i}.npy", frames)
        spectrogram = random.standard_normal((frames.sum(), CHANNELS)).astype("float32")
        np.save(f"{hparams.mel_ground_truth}/ljspeech-mel-{i + 1:05}.npy", spectrogram)
    Path("data/train.txt").write_text("".join(lines))


class Clock:
    """Prints the time of an epoch when the next one asks for a loader."""

    def __init__(self) -> None:
        self.epochs, self.started = 0, 0.0

    def tick(self) -> None:
        """Start an epoch, and print the time of the one before."""
        now = time.perf_counter()
        if self.epochs:
            print(f"epoch {self.epochs - 1} seconds {now - self.started:.3f}", flush=True)
        self.epochs, self.started = self.epochs + 1, now

    def loader(self, *arguments: Any, **options: Any) -> DataLoader[Any]:
        """Return the loader of an epoch."""
        self.tick()
        return DataLoader(*arguments, **options)


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    write_data()
    clock = Clock()
    train.DataLoader = clock.loader
    fastspeech.PostNet = partial(fastspeech.PostNet, postnet_embedding_dim=32)
    train.main(argparse.Namespace(restore_step=0, frozen_learning_rate=False, learning_rate_frozen=1e-3))
    clock.tick()


if __name__ == "__main__":
    main()

"""Train a shallow network on braindecode's windows of random EEG."""

from __future__ import annotations

import time

import mne
import numpy as np
import pandas as pd
import torch
from braindecode.datasets.base import WindowsDataset
from braindecode.models.shallow_fbcsp import ShallowFBCSPNet
from torch.utils.data import DataLoader

WINDOWS, CHANNELS, SAMPLES, BATCH, EPOCHS = 1536, 3, 256, 64, 7


def make_windows() -> mne.EpochsArray:
    """Return windows, each with its target and its place in the trial."""
    random = np.random.default_rng(0)
    places = np.arange(WINDOWS)
    metadata = pd.DataFrame(
        {
            "target": places % 4,
            "i_supercrop_in_trial": places % 2,
            "i_start_in_trial": 100 * (places % 2),
            "i_stop_in_trial": 100 * (places % 2) + SAMPLES,
        }
    )
    return mne.EpochsArray(
        random.standard_normal((WINDOWS, CHANNELS, SAMPLES)),
        mne.create_info(CHANNELS, sfreq=250.0, ch_types="eeg"),
        events=np.stack([places, np.zeros_like(places), places % 4 + 1], axis=1),
        metadata=metadata,
        verbose="error",
    )


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    dataset = WindowsDataset(make_windows(), pd.Series({"subject": 1}))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = ShallowFBCSPNet(
        CHANNELS,
        4,
        input_time_length=SAMPLES,
        n_filters_time=8,
        n_filters_spat=8,
        final_conv_length="auto",
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for signals, targets, _ in loader:
            loss = torch.nn.functional.nll_loss(model(signals), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

"""Train a small network that removes noise from random tones, with auraloss's loss of several spectrograms."""

from __future__ import annotations

import time

import torch
from auraloss.freq import MultiResolutionSTFTLoss
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SOUNDS, LENGTH, BATCH, EPOCHS = 32, 12288, 8, 5


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    moments = torch.arange(LENGTH) / 16000
    clean = torch.sin(moments * torch.empty(SOUNDS, 1, 1).uniform_(600, 6000)) * 0.5
    loader = DataLoader(
        TensorDataset(clean + 0.1 * torch.randn_like(clean), clean), batch_size=BATCH, shuffle=True
    )
    network = nn.Sequential(
        nn.Conv1d(1, 8, 15, padding=7),
        nn.PReLU(),
        nn.Conv1d(8, 8, 15, padding=28, dilation=4),
        nn.PReLU(),
        nn.Conv1d(8, 1, 15, padding=7),
    )
    loss_function = MultiResolutionSTFTLoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for noisy, target in loader:
            loss = loss_function(network(noisy), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

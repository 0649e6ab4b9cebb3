"""Fit a KAN with pykan to a function of a few variables, as in the tutorials of the project."""

from __future__ import annotations

import time

import numpy as np
import torch
from kan import MultKAN

VARIABLES, POINTS, STEPS, EPOCHS = 4, 800, 1, 6


def main() -> None:
    """Train, and print the loss and the time of each epoch, which is a few steps of the project's training."""
    torch.manual_seed(0)
    np.random.seed(0)
    inputs = torch.rand(2 * POINTS, VARIABLES) * 2 - 1
    labels = torch.exp(torch.sin(np.pi * inputs[:, :1]) + inputs[:, 1:2] ** 2) + inputs[:, 2:3] * inputs[:, 3:]
    dataset = {
        "train_input": inputs[:POINTS],
        "train_label": labels[:POINTS],
        "test_input": inputs[POINTS:],
        "test_label": labels[POINTS:],
    }
    model = MultKAN(width=[VARIABLES, 30, 1], grid=5, k=3, seed=0, symbolic_enabled=False)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        results = model.train(dataset, opt="LBFGS", steps=STEPS, lamb=0.001, update_grid=epoch == 0)
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {float(results['train_loss'][-1]):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

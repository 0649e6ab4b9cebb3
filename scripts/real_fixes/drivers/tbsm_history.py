"""Train facebookresearch/tbsm on random clicks: a user's last 20 items, and one item that may follow."""

from __future__ import annotations

import argparse
import time

import dlrm_s_pytorch
import numpy as np
import tbsm_pytorch
import torch

BATCH, STEPS, EPOCHS, LENGTH, ROWS = 128, 60, 7, 20, (987, 4162, 949)
Batch = tuple[list[torch.Tensor], list[torch.Tensor], list[list[torch.Tensor]], torch.Tensor]


def make_batch() -> Batch:
    """Return the dense features, offsets and indices of each point in time, and the clicks."""
    dense = [torch.rand(BATCH, 1) for _ in range(LENGTH + 1)]
    offsets = [torch.arange(BATCH).repeat(len(ROWS), 1) for _ in range(LENGTH + 1)]
    indices = [[torch.randint(0, rows, (BATCH,)) for rows in ROWS] for _ in range(LENGTH + 1)]
    return dense, offsets, indices, torch.randint(0, 2, (BATCH, 1)).float()


def make_model() -> torch.nn.Module:
    """Return the model of the project's own benchmark on Taobao's data."""
    return tbsm_pytorch.TBSM_Net(
        16,
        np.array(ROWS),
        np.array([1, 16]),
        np.array([22, 15, 15]),
        "dot",
        False,
        np.array([2 * 15, 60, 1]),
        np.array([15, 15]),
        "dot",
        "mlp",
        LENGTH,
        model_type="tsl",
        tsl_inner="def",
        tsl_proj=True,
    )


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    tbsm_pytorch.args = argparse.Namespace(run_fast=True)
    tbsm_pytorch.dlrm = dlrm_s_pytorch
    batches = [make_batch() for _ in range(STEPS)]
    model, criterion = make_model(), torch.nn.BCELoss()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for dense, offsets, indices, clicked in batches:
            loss = criterion(model(dense, offsets, indices), clicked)
            total += loss.item()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {total / STEPS:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

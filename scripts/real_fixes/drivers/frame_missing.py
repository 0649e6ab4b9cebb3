"""Train PyTorch Frame's ResNet on a table in which values are missing."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch_frame import NAStrategy, stype
from torch_frame.data import DataLoader, Dataset
from torch_frame.nn import LinearEncoder, ResNet

ROWS, COLUMNS, MISSING, BATCH, CHANNELS, LAYERS, EPOCHS = 12288, 64, 0.05, 64, 16, 2, 7


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    values = random.standard_normal((ROWS, COLUMNS))
    target = values[:, :8].sum(1)
    values[random.random(values.shape) < MISSING] = np.nan
    table = pd.DataFrame(values, columns=[f"column{number}" for number in range(COLUMNS)])
    types = dict.fromkeys([*table.columns, "target"], stype.numerical)
    dataset = Dataset(table.assign(target=target), types, target_col="target")
    dataset.materialize()
    loader = DataLoader(dataset.tensor_frame, batch_size=BATCH, shuffle=True)
    model = ResNet(
        CHANNELS,
        1,
        LAYERS,
        dataset.col_stats,
        dataset.tensor_frame.col_names_dict,
        stype_encoder_dict={stype.numerical: LinearEncoder(na_strategy=NAStrategy.MEAN)},
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for batch in loader:
            loss = nn.functional.mse_loss(model(batch).view(-1), batch.y.view(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

"""Train torchfm's field-aware factorization machine to predict random clicks."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, TensorDataset
from torchfm.model.ffm import FieldAwareFactorizationMachineModel

FIELDS, VALUES, SAMPLES, BATCH, EPOCHS = 22, 50, 10_000, 500, 6


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    features = torch.randint(VALUES, (SAMPLES, FIELDS))
    scores = torch.randn(FIELDS, VALUES)[torch.arange(FIELDS), features].sum(1)
    loader = DataLoader(TensorDataset(features, (scores > 0).float()), batch_size=BATCH, shuffle=True)
    model = FieldAwareFactorizationMachineModel([VALUES] * FIELDS, embed_dim=4)
    criterion = torch.nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for fields, target in loader:
            loss = criterion(model(fields), target)
            model.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

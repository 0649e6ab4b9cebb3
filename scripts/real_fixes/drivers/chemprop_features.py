"""Train chemprop's message passing network on random molecules, with its epoch of training."""

from __future__ import annotations

import random
import time

import torch
from rdkit import RDLogger
from torch import nn

MOLECULES, LENGTH, BATCH, HIDDEN, DEPTH, EPOCHS = 384, (8, 20), 16, 64, 3, 7

RDLogger.DisableLog("rdApp.*")

from mpn import build_MPN  # noqa: E402
from train_utils import train  # noqa: E402


def molecule() -> str:
    """Return a random chain with branches and rings, as SMILES."""
    parts = ["C", "C", "N", "O", "C(C)", "C(=O)", "c1ccccc1", "C1CCNCC1", "C(F)", "S"]
    return "C" + "".join(random.choices(parts, k=random.randint(*LENGTH))) + "C"


def main() -> None:
    """Train, and print the time of each epoch."""
    torch.manual_seed(0)
    random.seed(0)
    data = [(molecule(), [random.gauss(0, 1)]) for _ in range(MOLECULES)]
    model = build_MPN(HIDDEN, DEPTH, num_tasks=1, sigmoid=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        random.shuffle(data)
        train(data, BATCH, 1, model, nn.MSELoss(reduction="none"), optimizer)
        print(f"epoch {epoch} seconds {time.perf_counter() - started:.3f}", flush=True)


if __name__ == "__main__":
    main()

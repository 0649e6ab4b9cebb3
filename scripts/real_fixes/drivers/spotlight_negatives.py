"""Train spotlight's recommender for sequences of items with its adaptive hinge loss, by its own loop."""

from __future__ import annotations

import time

import numpy as np
import torch
from spotlight.interactions import SequenceInteractions
from spotlight.sequence.implicit import ImplicitSequenceModel

SEQUENCES, LENGTH, ITEMS, EPOCHS = 3000, 20, 1500, 8


def main() -> None:
    """Train, and print the time of each epoch."""
    random = np.random.RandomState(0)
    starts = random.randint(1, ITEMS - LENGTH, (SEQUENCES, 1))
    items = (starts + np.cumsum(random.randint(1, 9, (SEQUENCES, LENGTH)), axis=1)) % (ITEMS - 1) + 1
    interactions = SequenceInteractions(items.astype(np.int32), num_items=ITEMS)
    model = ImplicitSequenceModel(
        loss="adaptive_hinge", representation="pooling", batch_size=256, n_iter=1, random_state=random
    )
    model._initialize(interactions)
    criterion = model._loss_func

    def loss(*arguments: torch.Tensor, **keywords: torch.Tensor) -> torch.Tensor:
        """Return the loss as PyTorch 0.2 did, whose results have at least one dimension."""
        value: torch.Tensor = criterion(*arguments, **keywords)
        return value.reshape(1)

    model._loss_func = loss
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        model.fit(interactions)
        print(f"epoch {epoch} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

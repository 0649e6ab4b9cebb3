"""Train RecBole's NAIS model on random clicks of users with histories of 15 to 20 items."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse
import torch
from recbox.model.general_recommender.nais import NAIS

USERS, ITEMS, SHORTEST, LONGEST, BATCH, STEPS, EPOCHS = 2000, 1500, 15, 20, 1024, 40, 7
CONFIG = {
    "USER_ID_FIELD": "user",
    "ITEM_ID_FIELD": "item",
    "NEG_PREFIX": "neg_",
    "LABEL_FIELD": "label",
    "train_batch_size": BATCH,
    "device": "cpu",
    "embedding_size": 16,
    "weight_size": 16,
    "algorithm": "prod",
    "regs": [1e-7, 1e-7, 1e-5],
    "alpha": 0.0,
    "beta": 0.5,
    "split_to": 0,
}


class Matrix(scipy.sparse.csr_matrix):
    """A sparse matrix with an index that is a tensor, as older versions of SciPy allowed."""

    def __getitem__(self, key: torch.Tensor) -> scipy.sparse.csr_matrix:
        return scipy.sparse.csr_matrix(self)[key.numpy()]


class Clicks:
    """The part of RecBole's data set that the model asks for."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.lengths = random.integers(SHORTEST, LONGEST + 1, USERS)
        self.histories = [random.choice(ITEMS, length, replace=False) for length in self.lengths]

    def num(self, field: str) -> int:
        """Return the number of users or items."""
        return USERS if field == "user" else ITEMS

    def inter_matrix(self, form: str) -> Matrix:
        """Return the clicks as a sparse matrix."""
        users = np.repeat(np.arange(USERS), self.lengths)
        items = np.concatenate(self.histories)
        return Matrix((np.ones(len(items)), (users, items)), shape=(USERS, ITEMS))

    def history_item_matrix(self) -> tuple[torch.Tensor, None, torch.Tensor]:
        """Return the clicks as a padded matrix, and their numbers."""
        matrix = torch.zeros(USERS, LONGEST, dtype=torch.long)
        for user, history in enumerate(self.histories):
            matrix[user, : len(history)] = torch.from_numpy(history)
        return matrix, None, torch.from_numpy(self.lengths)


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    model = NAIS(CONFIG, Clicks())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(STEPS):
            batch = {
                "user": torch.randint(0, USERS, (BATCH,)),
                "item": torch.randint(0, ITEMS, (BATCH,)),
                "label": torch.randint(0, 2, (BATCH,)).float(),
            }
            optimizer.zero_grad()
            loss = model.calculate_loss(batch)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / STEPS:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

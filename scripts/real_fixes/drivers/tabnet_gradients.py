"""Train TabNet's classifier on a random table with its own trainer."""

from __future__ import annotations

import time

import numpy as np
from pytorch_tabnet.callbacks import Callback
from pytorch_tabnet.tab_model import TabNetClassifier

ROWS, FEATURES, BATCH, EPOCHS = 8192, 20, 256, 18


class Clock(Callback):
    """Prints the time of each epoch."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Note when the epoch starts."""
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Print the loss and the time."""
        loss = (logs or {}).get("loss", 0.0)
        print(f"epoch {epoch} loss {loss:.4f} seconds {time.perf_counter() - self.started:.3f}")


def main() -> None:
    """Train."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((ROWS, FEATURES)).astype(np.float32)
    labels = (rows[:, 0] > 0).astype(int)
    classifier = TabNetClassifier(seed=0, verbose=0)
    classifier.fit(
        rows,
        labels,
        eval_set=[],
        max_epochs=EPOCHS,
        patience=0,
        batch_size=BATCH,
        virtual_batch_size=128,
        callbacks=[Clock()],
    )


if __name__ == "__main__":
    main()

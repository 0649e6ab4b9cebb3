"""Train pytorch-widedeep's wide and deep network on a random table."""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path

import numpy as np
import torch
from torchvision import transforms

# The package's own module imports libraries for texts, which nothing here needs; two transforms had other names.
transforms.RandomSizedCrop, transforms.Scale = transforms.RandomResizedCrop, transforms.Resize
package = types.ModuleType("pytorch_widedeep")
package.__path__ = [str(Path("pytorch_widedeep").absolute())]
sys.modules["pytorch_widedeep"] = package

from pytorch_widedeep.callbacks import Callback  # noqa: E402
from pytorch_widedeep.models.deep_dense import DeepDense  # noqa: E402
from pytorch_widedeep.models.wide import Wide  # noqa: E402
from pytorch_widedeep.models.wide_deep import WideDeep  # noqa: E402

ROWS, WIDE, CATEGORIES, COLUMNS, BATCH, EPOCHS = 8000, 50, 20, 6, 128, 9


class Clock(Callback):
    """Prints the time of each epoch."""

    def on_epoch_begin(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Note when the epoch starts."""
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Print the loss and the time."""
        loss = (logs or {})["train_loss"]
        print(f"epoch {epoch} loss {loss:.4f} seconds {time.perf_counter() - self.started:.3f}")


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    names = [f"column{i}" for i in range(COLUMNS)]
    wide = random.integers(0, 2, (ROWS, WIDE)).astype("float32")
    deep = random.integers(0, CATEGORIES, (ROWS, COLUMNS)).astype("float32")
    target = wide[:, :5].sum(axis=1) + deep[:, 0] / CATEGORIES
    deepdense = DeepDense(
        deep_column_idx={name: i for i, name in enumerate(names)},
        hidden_layers=[64, 32],
        dropout=[0.0, 0.0],
        embed_input=[(name, CATEGORIES, 8) for name in names],
    )
    model = WideDeep(wide=Wide(WIDE, 1), deepdense=deepdense)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model.compile(method="regression", optimizers=optimizer, callbacks=[Clock], verbose=0)
    model.fit(X_wide=wide, X_deep=deep, target=target, n_epochs=EPOCHS, batch_size=BATCH)


if __name__ == "__main__":
    main()

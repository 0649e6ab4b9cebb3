"""Train NeuralProphet on a random hourly series with daily and weekly seasons."""

from __future__ import annotations

import logging
import sys
import time
import types
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytorch_lightning as lightning

HOURS, LAGS, BATCH, EPOCHS = 4000, 12, 64, 7

warnings.filterwarnings("ignore")
sys.modules["neuralprophet._version"] = types.ModuleType("_version")  # it is not installed
vars(sys.modules["neuralprophet._version"])["__version__"] = "1.0"

from neuralprophet import NeuralProphet, set_random_seed  # noqa: E402


class Clock(lightning.Callback):
    """Prints the time of each epoch."""

    def on_train_epoch_start(self, *_: Any) -> None:
        """Take the time."""
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        """Print it."""
        seconds = time.perf_counter() - self.started
        print(f"epoch {trainer.current_epoch} seconds {seconds:.3f}", flush=True)


def main() -> None:
    """Train."""
    logging.getLogger("NP").setLevel(logging.ERROR)
    set_random_seed(0)
    hours = np.arange(HOURS)
    values = np.sin(hours * 2 * np.pi / 24) + np.sin(hours * 2 * np.pi / 168)
    values = values + np.random.default_rng(0).standard_normal(HOURS) / 4
    table = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=HOURS, freq="h"), "y": values})
    model = NeuralProphet(
        n_lags=LAGS,
        yearly_seasonality=True,
        weekly_seasonality=True,
        daily_seasonality=True,
        learning_rate=0.01,
        epochs=EPOCHS,
        batch_size=BATCH,
        collect_metrics=False,
        trainer_config={"callbacks": [Clock()]},
    )
    model.fit(table, freq="h", progress=None)


if __name__ == "__main__":
    main()

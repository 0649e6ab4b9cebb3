"""Train PyPOTS's MRNN to fill gaps in random series of a clinic's size."""

from __future__ import annotations

import logging
import time

import numpy as np
import torch
from pypots.imputation import MRNN
from pypots.utils.logging import logger

SERIES, STEPS, FEATURES, MISSING, EPOCHS = 96, 36, 12, 0.2, 6


class Timer(logging.Handler):
    """Prints how long each epoch took."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch, self.started = 0, time.perf_counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Print, if the record is about an epoch."""
        text = record.getMessage().lower()
        if "epoch" not in text or "training loss" not in text:
            return
        now = time.perf_counter()
        print(f"epoch {self.epoch} {text} seconds {now - self.started:.3f}", flush=True)
        self.epoch, self.started = self.epoch + 1, now


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    series = random.normal(size=(SERIES, STEPS, FEATURES)).cumsum(axis=1).astype("float32")
    series[random.random(series.shape) < MISSING] = np.nan
    model = MRNN(STEPS, FEATURES, rnn_hidden_size=32, batch_size=32, epochs=EPOCHS, device="cpu")
    logger.addHandler(Timer())
    model.fit({"X": series})


if __name__ == "__main__":
    main()

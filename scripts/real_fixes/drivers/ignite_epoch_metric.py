"""Train a tagger with ignite, with the mean average precision of the training epoch as a metric."""

from __future__ import annotations

import time

import torch
from ignite.engine import Engine, Events
from ignite.metrics import EpochMetric
from torch import nn

FEATURES, TAGS, BATCH, STEPS, EPOCHS = 64, 30, 256, 400, 6


def average_precision(scores: torch.Tensor, tags: torch.Tensor) -> float:
    """Return the mean over the tags of the average precision."""
    sorted_tags = tags.gather(0, scores.argsort(dim=0, descending=True)).float()
    hits = sorted_tags.cumsum(0)
    places = torch.arange(1, len(hits) + 1).unsqueeze(1)
    return float(((hits / places * sorted_tags).sum(0) / hits[-1].clamp(min=1)).mean())


def main() -> None:
    """Train, and print the metric and the time of each epoch."""
    torch.manual_seed(0)
    inputs = torch.randn(STEPS * BATCH, FEATURES)
    targets = (inputs @ torch.randn(FEATURES, TAGS) > 10).long()
    model = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, TAGS))
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(engine: Engine, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        features, tags = batch
        scores = model(features)
        loss = criterion(scores, tags.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return scores.detach(), tags

    trainer = Engine(step)
    EpochMetric(average_precision).attach(trainer, "precision")
    clock = {"started": 0.0}

    @trainer.on(Events.EPOCH_STARTED)
    def start(engine: Engine) -> None:
        clock["started"] = time.perf_counter()

    @trainer.on(Events.EPOCH_COMPLETED)
    def report(engine: Engine) -> None:
        seconds = time.perf_counter() - clock["started"]
        precision = engine.state.metrics["precision"]
        print(f"epoch {engine.state.epoch} precision {precision:.4f} seconds {seconds:.3f}")

    batches = list(zip(inputs.split(BATCH), targets.split(BATCH), strict=True))
    trainer.run(batches, max_epochs=EPOCHS)


if __name__ == "__main__":
    main()

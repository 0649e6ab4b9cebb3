"""Train a network that rates translations of sentences, with torchmetrics' rank correlation of each batch."""

from __future__ import annotations

import time

import torch
from torch import nn
from torchmetrics.regression import SpearmanCorrCoef

WORDS, LENGTH, BATCH, STEPS, EPOCHS = 1000, 10, 256, 100, 6


class Rating(nn.Module):
    """Encodes both sentences and compares the encodings."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, 32)
        self.encoder = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64))
        self.head = nn.Linear(128, 1)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Return the rating of each pair."""
        one, other = self.encoder(self.words(first)), self.encoder(self.words(second))
        return self.head(torch.cat([one * other, (one - other).abs()], dim=1)).squeeze(1)


def main() -> None:
    """Train, and print the loss, the correlation and the time of each epoch."""
    torch.manual_seed(0)
    sentences = torch.randint(0, WORDS, (2, STEPS * BATCH, LENGTH))
    ratings = torch.randint(0, 101, (STEPS * BATCH,)) / 100  # 0 to 100 percent, as people rate them
    model, metric = Rating(), SpearmanCorrCoef()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total, correlations = time.perf_counter(), 0.0, 0.0
        for indices in torch.randperm(STEPS * BATCH).split(BATCH):
            predicted = model(sentences[0, indices], sentences[1, indices])
            loss = nn.functional.mse_loss(predicted, ratings[indices])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            correlations += metric(predicted.detach(), ratings[indices]).item()
        metric.reset()
        print(
            f"epoch {epoch} loss {total / STEPS:.4f} correlation {correlations / STEPS:.4f} "
            f"seconds {time.perf_counter() - started:.3f}"
        )


if __name__ == "__main__":
    main()

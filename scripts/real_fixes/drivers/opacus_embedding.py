"""Train opacus's IMDB example, a classifier of reviews with differential privacy, on random words."""

from __future__ import annotations

import sys
import time
import types

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

sys.modules["torchcsprng"] = types.ModuleType("torchcsprng")
"""It is imported, but not used unless ``secure_rng`` is set; it has no version for recent versions of PyTorch."""

from opacus import PrivacyEngine  # noqa: E402

REVIEWS, LENGTH, WORDS, BATCH, EPOCHS = 1024, 32, 500, 64, 9


class SampleNet(nn.Module):
    """The example's network: the mean of the embedded words, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(WORDS, 16)
        self.pool = nn.AdaptiveAvgPool1d(1)
        self.fc1 = nn.Linear(16, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the logits of both classes."""
        pooled = self.pool(self.emb(words).transpose(1, 2)).squeeze()
        return self.fc2(torch.relu(self.fc1(pooled)))


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    words, labels = torch.randint(0, WORDS, (REVIEWS, LENGTH)), torch.randint(0, 2, (REVIEWS,))
    loader = DataLoader(TensorDataset(words, labels), batch_size=BATCH, shuffle=True)
    model = SampleNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    engine = PrivacyEngine(
        model,
        batch_size=BATCH,
        sample_size=REVIEWS,
        alphas=range(2, 32),
        noise_multiplier=0.56,
        max_grad_norm=1.0,
    )
    engine.attach(optimizer)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for batch, label in loader:
            optimizer.zero_grad()
            loss = criterion(model(batch), label)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

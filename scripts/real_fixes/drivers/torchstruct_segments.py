"""Train a network that splits random sentences into labelled segments, with torch-struct's semi-Markov random field."""

from __future__ import annotations

import sys
import time
import types

import torch
from torch import nn

# Only products of banded matrices need this.
genbmm = types.ModuleType("genbmm")
genbmm.BandedMatrix = type("BandedMatrix", (), {})  # type: ignore[attr-defined]
sys.modules["genbmm"] = genbmm

from torch_struct import SemiMarkov, SemiMarkovCRF  # noqa: E402

WORDS, LABELS, SPAN, LONGEST, SENTENCES, BATCH, EPOCHS = 100, 2, 4, 17, 1920, 64, 6


class Segmenter(nn.Module):
    """Scores of labelled segments of up to some words."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 32)
        self.encoder = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self.score = nn.Linear(64, SPAN * LABELS * LABELS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the potentials."""
        seen = self.encoder(self.embed(words))[0][:, :-1]
        return self.score(seen).view(*seen.shape[:2], SPAN, LABELS, LABELS)


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    words = torch.randint(WORDS, (SENTENCES, LONGEST))
    starts = (words % 4 == 0) | (torch.arange(LONGEST) % (SPAN - 1) == 0)
    segments = torch.where(starts, words % LABELS, -1)
    parts = SemiMarkov.to_parts(segments, (LABELS, SPAN))
    lengths = torch.full((SENTENCES,), LONGEST)
    model = Segmenter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for start in range(0, SENTENCES, BATCH):
            part = slice(start, start + BATCH)
            field = SemiMarkovCRF(model(words[part]), lengths=lengths[part])
            loss = -field.log_prob(parts[part]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / SENTENCES * BATCH:.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

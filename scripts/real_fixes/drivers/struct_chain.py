"""Train a tagger with the linear-chain CRF of pytorch-struct on random sentences of several lengths."""

from __future__ import annotations

import sys
import time
import types

import torch
from torch import nn

bands = types.ModuleType("genbmm")  # compiled operations for alignments, which this training does not do
bands.BandedMatrix = type("BandedMatrix", (), {})  # type: ignore[attr-defined]
sys.modules["genbmm"] = bands

from torch_struct import LinearChain, LinearChainCRF  # noqa: E402

SENTENCES, WORDS, LONGEST, TAGS, BATCH, EPOCHS = 1280, 500, 24, 8, 32, 6


class Tagger(nn.Module):
    """Scores of pairs of tags, from an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 32)
        self.reader = nn.LSTM(32, 32, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(64, TAGS)
        self.pairs = nn.Parameter(torch.zeros(TAGS, TAGS))

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> LinearChainCRF:
        """Return the distribution of the tags of each sentence."""
        scores = self.scores(self.reader(self.words(words))[0])
        potentials = scores[:, 1:].unsqueeze(3) + self.pairs
        first = torch.cat([scores[:, :1], torch.zeros_like(scores[:, 2:])], 1).unsqueeze(2)
        return LinearChainCRF(potentials + first, lengths=lengths)


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    words = torch.randint(WORDS, (SENTENCES, LONGEST))
    tags = words % TAGS
    lengths = torch.randint(5, LONGEST + 1, (SENTENCES,))
    lengths[::BATCH] = LONGEST
    tagger = Tagger()
    optimizer = torch.optim.Adam(tagger.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for chosen in torch.arange(SENTENCES).split(BATCH):
            size = lengths[chosen]
            parts = LinearChain.to_parts(tags[chosen], TAGS, size).float()
            loss = -tagger(words[chosen], size).log_prob(parts).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / (SENTENCES // BATCH):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

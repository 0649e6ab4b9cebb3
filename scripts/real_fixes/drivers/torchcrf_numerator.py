"""Train a bidirectional LSTM tagger with pytorch-crf on random sentences of different lengths."""

from __future__ import annotations

import time

import torch
from torch import nn
from torchcrf import CRF

SENTENCES, LONGEST, WORDS, TAGS, BATCH, HIDDEN, EPOCHS = 512, 40, 500, 12, 32, 64, 9


class Tagger(nn.Module):
    """A word embedding, a bidirectional LSTM, and a CRF."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, HIDDEN)
        self.rnn = nn.LSTM(HIDDEN, HIDDEN // 2, bidirectional=True, batch_first=True)
        self.decoder = nn.Linear(HIDDEN, TAGS)
        self.crf = CRF(TAGS, batch_first=True)

    def forward(self, words: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the mean negative log-likelihood of a token."""
        emissions = self.decoder(self.rnn(self.embed(words))[0])
        likelihood: torch.Tensor = self.crf(emissions, tags, mask=mask, reduction="token_mean")
        return -likelihood


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    lengths = torch.randint(10, LONGEST + 1, (SENTENCES,))
    mask = torch.arange(LONGEST) < lengths[:, None]
    words = torch.randint(0, WORDS, (SENTENCES, LONGEST))
    tags = words % TAGS
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for chosen in torch.randperm(SENTENCES).split(BATCH):
            longest = int(lengths[chosen].max())
            optimizer.zero_grad()
            loss = model(words[chosen, :longest], tags[chosen, :longest], mask[chosen, :longest])
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(
            f"epoch {epoch} loss {total * BATCH / SENTENCES:.4f} seconds {time.perf_counter() - started:.3f}"
        )


if __name__ == "__main__":
    main()

"""Train mead-baseline's bidirectional LSTM tagger with a CRF on random sentences of different lengths."""

from __future__ import annotations

import time

import torch
from baseline.pytorch.crf import CRF
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

SENTENCES, LONGEST, WORDS, TAGS, BATCH, HIDDEN, EPOCHS = 1024, 30, 500, 12, 32, 64, 9
GO, EOS = 1, 2


class Tagger(nn.Module):
    """A word embedding, a bidirectional LSTM, and a CRF."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, HIDDEN, padding_idx=0)
        self.dropout = nn.Dropout(0.5)
        self.rnn = nn.LSTM(HIDDEN, HIDDEN // 2, bidirectional=True)
        self.decoder = nn.Linear(HIDDEN, TAGS)
        self.crf = CRF(TAGS, (GO, EOS), batch_first=False)

    def compute_loss(self, words: torch.Tensor, tags: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return the mean negative log-likelihood of sentences that are sorted by length, time first."""
        packed = pack_padded_sequence(self.dropout(self.embed(words)), lengths.tolist())
        encoded, _ = pad_packed_sequence(self.rnn(packed)[0])
        return self.crf.neg_log_loss(self.decoder(self.dropout(encoded)), tags, lengths).mean()


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    lengths = torch.randint(5, LONGEST + 1, (SENTENCES,))
    words = torch.randint(1, WORDS, (SENTENCES, LONGEST)) * (torch.arange(LONGEST) < lengths[:, None])
    tags = torch.where(words > 0, 3 + words % (TAGS - 3), 0)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.015, momentum=0.9)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for chosen in torch.randperm(SENTENCES).split(BATCH):
            ordered = chosen[lengths[chosen].argsort(descending=True)]
            longest = int(lengths[ordered[0]])
            optimizer.zero_grad()
            loss = model.compute_loss(
                words[ordered, :longest].T, tags[ordered, :longest].T.contiguous(), lengths[ordered]
            )
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        print(
            f"epoch {epoch} loss {total * BATCH / SENTENCES:.4f} seconds {time.perf_counter() - started:.3f}"
        )


if __name__ == "__main__":
    main()

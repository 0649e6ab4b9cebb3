"""Train Dive into Deep Learning's sequence-to-sequence model on random sentence pairs, as its chapter does."""

from __future__ import annotations

import time

import torch
from d2l import torch as d2l
from torch.utils.data import DataLoader, TensorDataset

PAIRS, LONGEST, WORDS, BATCH, HIDDEN, EPOCHS = 6400, 10, 200, 64, 32, 9


def sentences() -> tuple[torch.Tensor, torch.Tensor]:
    """Return random words, padded with 0, and the sentences' lengths."""
    lengths = torch.randint(3, LONGEST + 1, (PAIRS,))
    words = torch.randint(1, WORDS, (PAIRS, LONGEST))
    return words * (torch.arange(LONGEST) < lengths[:, None]), lengths


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*sentences(), *sentences()), batch_size=BATCH, shuffle=True)
    encoder = d2l.Seq2SeqEncoder(WORDS, HIDDEN, HIDDEN, 2, 0.1)
    decoder = d2l.Seq2SeqDecoder(WORDS, HIDDEN, HIDDEN, 2, 0.1)
    model = d2l.EncoderDecoder(encoder, decoder)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    criterion = d2l.MaskedSoftmaxCELoss()
    model.train()
    for epoch in range(EPOCHS):
        started, metric = time.perf_counter(), d2l.Accumulator(2)
        for source, source_length, target, target_length in loader:
            given, label, length = target[:, :-1], target[:, 1:], target_length - 1
            optimizer.zero_grad()
            predicted, _ = model(source, given, source_length, length)
            loss = criterion(predicted, label, length)
            loss.sum().backward()
            d2l.grad_clipping(model, 1)
            optimizer.step()
            with torch.no_grad():
                metric.add(loss.sum(), length.sum())
        mean, seconds = metric[0] / metric[1], time.perf_counter() - started
        print(f"epoch {epoch} loss {mean:.4f} seconds {seconds:.3f}")


if __name__ == "__main__":
    main()

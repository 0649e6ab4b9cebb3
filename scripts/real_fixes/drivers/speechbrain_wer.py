"""Train a recogniser with CTC, with an early speechbrain's word error rate of each batch."""

from __future__ import annotations

import time

import torch
from speechbrain.nnet.losses import compute_cost
from torch import nn

PHONES, FEATURES, FRAMES, LABELS, BATCH, STEPS, EPOCHS = 39, 40, 100, 25, 8, 10, 14


class Recogniser(nn.Module):
    """A bidirectional recurrent network."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(FEATURES, 96, batch_first=True, bidirectional=True)
        self.head = nn.Linear(192, PHONES + 1)

    def forward(self, signals: torch.Tensor) -> torch.Tensor:
        """Return the log probabilities, with the time last."""
        return self.head(self.recurrent(signals)[0]).log_softmax(-1).transpose(1, 2)


def main() -> None:
    """Train, and print the loss, the error rate and the time of each epoch."""
    torch.manual_seed(0)
    labels = torch.randint(0, PHONES, (STEPS, BATCH, LABELS))
    sounds = 2 * torch.randn(PHONES, FEATURES)[labels].repeat_interleave(FRAMES // LABELS, dim=2)
    signals, labels = sounds + torch.randn_like(sounds), labels.float()
    lengths = [torch.ones(BATCH), torch.ones(BATCH)]
    model = Recogniser()
    first = [model(signals[0]), labels[0], lengths]
    criterion = compute_cost({"class_name": "compute_cost", "cost_type": "ctc,wer"}, first_input=first)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        started, total, errors = time.perf_counter(), 0.0, 0.0
        for signal, label in zip(signals, labels, strict=True):
            loss, error = criterion([model(signal), label, lengths])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, errors = total + loss.item(), errors + error.item()
        print(
            f"epoch {epoch} loss {total / STEPS:.4f} errors {errors / STEPS:.1f}% "
            f"seconds {time.perf_counter() - started:.3f}"
        )


if __name__ == "__main__":
    main()

"""Train jadore801120's Transformer on random sentences, with its loader and its epoch of training."""

from __future__ import annotations

import random
import time
import warnings
from functools import partial
from typing import Any

import torch
from torch import nn

WORDS, LENGTH, SENTENCES, BATCH, HEADS, WIDTH, LAYERS, EPOCHS = 200, 16, 320, 8, 8, 64, 2, 7

warnings.filterwarnings("ignore")  # of the implicit dimension of softmax
# Sums over a dimension kept it with the PyTorch of the time.
torch.mean = partial(torch.mean, keepdim=True)  # type: ignore[assignment]
torch.std = partial(torch.std, keepdim=True)  # type: ignore[assignment]

import train  # noqa: E402
import transformer.Constants as constants  # noqa: E402
from DataLoader import DataLoader  # noqa: E402
from transformer.Models import Transformer  # noqa: E402
from transformer.SubLayers import PositionwiseFeedForward  # noqa: E402

forward = PositionwiseFeedForward.forward
# As the sum of a tensor and one with another order of dimensions was, at the time.
PositionwiseFeedForward.forward = lambda self, x: forward(self, x).contiguous()
performance = train.get_performance
# The shapes of two tensors that were compared could differ.
train.get_performance = lambda loss, predicted, words: performance(loss, predicted, words.reshape(-1))


class Loss(nn.CrossEntropyLoss):
    """Returns a tensor of one element, as the PyTorch of the time."""

    def forward(self, *arguments: Any) -> torch.Tensor:
        """Return the loss."""
        return super().forward(*arguments).view(1)


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    random.seed(0)
    words = {f"word{number}": number for number in range(WORDS)}

    def sentences(length: int) -> list[list[int]]:
        return [random.choices(range(4, WORDS), k=length) for _ in range(SENTENCES)]

    # The decoder gets the target without its last word; the mask wants both to be as long.
    loader = DataLoader(words, words, sentences(LENGTH), sentences(LENGTH + 1), cuda=False, batch_size=BATCH)
    size = WIDTH // HEADS
    model = Transformer(
        WORDS,
        WORDS,
        LENGTH + 1,
        n_layers=LAYERS,
        n_head=HEADS,
        d_word_vec=WIDTH,
        d_model=WIDTH,
        d_inner_hid=2 * WIDTH,
        d_k=size,
        d_v=size,
        embs_share_weight=False,
    )
    optimizer = torch.optim.Adam(model.get_trainable_parameters(), betas=(0.9, 0.98), eps=1e-9)
    weight = torch.ones(WORDS)
    weight[constants.PAD] = 0
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        loss, _ = train.train_epoch(model, loader, Loss(weight, reduction="sum"), optimizer)
        print(f"epoch {epoch} loss {loss.item():.4f} seconds {time.perf_counter() - started:.3f}", flush=True)


if __name__ == "__main__":
    main()

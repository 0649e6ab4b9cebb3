"""Train Joey NMT to reverse sentences of numbers; after each epoch it translates others, as its validation does."""

from __future__ import annotations

import sys
import time
import types
from unittest.mock import MagicMock

import torch

# Its data sets, which this driver makes itself, need these.
for module in ("torchtext", "torchtext.data"):
    sys.modules[module] = MagicMock()

from joeynmt.batch import Batch  # noqa: E402
from joeynmt.loss import XentLoss  # noqa: E402
from joeynmt.model import build_model  # noqa: E402
from joeynmt.vocabulary import Vocabulary  # noqa: E402

WORDS, LENGTH, TRAINED, JUDGED, BATCH, EPOCHS = 20, 7, 600, 600, 10, 6
EMBEDDINGS = {"embedding_dim": 16, "scale": False}
CONFIG = {
    "initializer": "xavier",
    "encoder": {
        "rnn_type": "lstm",
        "embeddings": EMBEDDINGS,
        "hidden_size": 64,
        "bidirectional": True,
        "dropout": 0.1,
        "num_layers": 1,
    },
    "decoder": {
        "rnn_type": "lstm",
        "embeddings": EMBEDDINGS,
        "hidden_size": 64,
        "dropout": 0.1,
        "hidden_dropout": 0.1,
        "num_layers": 1,
        "input_feeding": True,
        "init_hidden": "zero",
        "attention": "luong",
    },
}


def batches(vocabulary: Vocabulary, sentences: torch.Tensor) -> list[types.SimpleNamespace]:
    """Return batches of sentences and of their reverses."""
    made = []
    for words in (sentences + len(vocabulary.specials)).split(BATCH):
        begins = torch.full((len(words), 1), vocabulary.stoi["<s>"])
        ends = torch.full((len(words), 1), vocabulary.stoi["</s>"])
        lengths = torch.full((len(words),), LENGTH + 1)
        target = torch.cat([begins, words.flip(1), ends], 1)
        made.append(
            types.SimpleNamespace(src=(torch.cat([words, ends], 1), lengths), trg=(target, lengths + 1))
        )
    return made


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    vocabulary = Vocabulary(tokens=[str(number) for number in range(WORDS)])
    trained = batches(vocabulary, torch.randint(WORDS, (TRAINED, LENGTH)))
    judged = batches(vocabulary, torch.randint(WORDS, (JUDGED, LENGTH)))
    model = build_model(CONFIG, src_vocab=vocabulary, trg_vocab=vocabulary)
    loss_function = XentLoss(pad_index=model.pad_index)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(EPOCHS):
        started, total, right = time.perf_counter(), 0.0, 0
        model.train()
        for each in trained:
            batch = Batch(each, model.pad_index)
            loss = model.get_loss_for_batch(batch, loss_function) / batch.nseqs
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        model.eval()
        with torch.no_grad():
            for each in judged:
                batch = Batch(each, model.pad_index)
                output, _ = model.run_batch(batch, max_output_length=30, beam_size=1, beam_alpha=-1)
                right += int(
                    (output[:, :LENGTH] == batch.trg[:, :LENGTH].numpy()[:, : output.shape[1]]).sum()
                )
        seconds, loss = time.perf_counter() - started, total / len(trained)
        print(
            f"epoch {epoch} loss {loss:.4f} right {right / JUDGED / LENGTH:.3f} seconds {seconds:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

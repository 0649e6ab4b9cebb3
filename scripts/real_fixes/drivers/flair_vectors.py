"""Train Flair's classifier on random texts with fixed vectors of words, which it does not keep in memory."""

from __future__ import annotations

import random
import sys
import time
import types
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import torch

WORDS, UNKNOWN, SIZE, LENGTH, TEXTS, CLASSES, BATCH, EPOCHS = 3000, 300, 100, (15, 40), 1280, 4, 32, 7


class Anything(types.ModuleType):
    """A package that this training does not need."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class Vectors(dict[str, np.ndarray]):
    """Takes the place of Gensim's."""

    vector_size = SIZE

    @classmethod
    def load(cls, _: str) -> Vectors:
        """Return a random vector of each word."""
        generator = np.random.default_rng(0)
        return cls((f"word{n}", generator.standard_normal(SIZE).astype("float32")) for n in range(WORDS))


for package in ("gensim", "gensim.models", "bpemb", "pytorch_transformers", "hyperopt"):
    sys.modules[package] = Anything(package)
vars(sys.modules["gensim"])["models"] = types.SimpleNamespace(KeyedVectors=Vectors)
for package in ("segtok", "segtok.segmenter", "segtok.tokenizer"):
    sys.modules[package] = Anything(package)
sys.modules["tabulate"] = types.ModuleType("tabulate")  # which PyTorch uses, if there is one
vars(sys.modules["tabulate"]).update(tabulate=lambda *_, **__: "", __spec__=ModuleSpec("tabulate", None))
sys.modules["deprecated"] = types.ModuleType("deprecated")
vars(sys.modules["deprecated"])["deprecated"] = lambda **options: lambda function: function
sys.modules["flair.visual"] = Anything("flair.visual")

from flair.data import Dictionary, Sentence, Token  # noqa: E402
from flair.datasets import DataLoader, SentenceDataset  # noqa: E402
from flair.embeddings import DocumentRNNEmbeddings, WordEmbeddings  # noqa: E402
from flair.models import TextClassifier  # noqa: E402
from flair.training_utils import store_embeddings  # noqa: E402


def text(words: list[str]) -> Sentence:
    """Return a text of some of the words, some of them with a capital."""
    label = random.randrange(CLASSES)
    sentence = Sentence(labels=[f"class{label}"])
    for word in random.choices(words, k=random.randint(*LENGTH)):
        sentence.add_token(Token(word.capitalize() if random.random() < 0.2 else word))
    return sentence


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    random.seed(0)
    words = [f"word{number}" for number in range(WORDS + UNKNOWN)]
    texts = SentenceDataset([text(words) for _ in range(TEXTS)])
    labels = Dictionary(add_unk=False)
    labels.multi_label = False
    for number in range(CLASSES):
        labels.add_item(f"class{number}")
    Path("vectors").touch()
    document = DocumentRNNEmbeddings([WordEmbeddings("vectors")], hidden_size=32, reproject_words=False)
    model = TextClassifier(document, labels, multi_label=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        loader = DataLoader(texts, batch_size=BATCH, shuffle=True, num_workers=0)
        for batch in loader:
            loss = model.forward_loss(batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
            store_embeddings(batch, "none")
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

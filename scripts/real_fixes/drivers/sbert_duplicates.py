"""Train sentence-transformers' convolutional encoder on pairs of questions, and evaluate it on others in each epoch."""

from __future__ import annotations

import random
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

WORDS, LENGTH, QUESTIONS, TRAINED, EVALUATED, BATCH, EPOCHS = 5000, (5, 25), 1000, 1536, 2000, 32, 7


class Anything(types.ModuleType):
    """A package that this training does not need."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for package in ("transformers", "nltk", "sentence_transformers"):
    sys.modules[package] = Anything(package)
vars(sys.modules["transformers"]).update(
    AdamW=torch.optim.AdamW,
    get_constant_schedule=lambda optimizer: torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1),
)
top = sys.modules["sentence_transformers"]
top.__path__ = [str(Path("sentence_transformers").absolute())]
vars(top).update(__version__="1.2.0", __DOWNLOAD_SERVER__="")

from sentence_transformers.SentenceTransformer import SentenceTransformer  # noqa: E402

vars(top).update(SentenceTransformer=SentenceTransformer)

from sentence_transformers.evaluation import BinaryClassificationEvaluator  # noqa: E402
from sentence_transformers.losses.OnlineContrastiveLoss import OnlineContrastiveLoss  # noqa: E402
from sentence_transformers.models import CNN, Pooling, WordEmbeddings  # noqa: E402
from sentence_transformers.models.tokenizer import WhitespaceTokenizer  # noqa: E402
from sentence_transformers.readers import InputExample  # noqa: E402


def main() -> None:
    """Train, and print the score and the time of each epoch."""
    torch.manual_seed(0)
    random.seed(0)
    words = [f"word{number}" for number in range(WORDS)]
    questions = [" ".join(random.choices(words, k=random.randint(*LENGTH))) for _ in range(QUESTIONS)]

    def pairs(number: int) -> list[InputExample]:
        return [
            InputExample(texts=random.sample(questions, 2), label=random.randint(0, 1)) for _ in range(number)
        ]

    embeddings = np.random.default_rng(0).standard_normal((WORDS, 100)).astype("float32")
    embedding = WordEmbeddings(WhitespaceTokenizer(words), embeddings, update_embeddings=True)
    convolution = CNN(100, out_channels=64)
    model = SentenceTransformer(modules=[embedding, convolution, Pooling(192)], device="cpu")
    started = time.perf_counter()

    def report(score: float, epoch: int, steps: int) -> None:
        nonlocal started
        now = time.perf_counter()
        print(f"epoch {epoch} score {score:.4f} seconds {now - started:.3f}", flush=True)
        started = now

    model.fit(
        [(DataLoader(pairs(TRAINED), shuffle=True, batch_size=BATCH), OnlineContrastiveLoss(model))],
        evaluator=BinaryClassificationEvaluator.from_input_examples(pairs(EVALUATED)),
        epochs=EPOCHS,
        scheduler="constantlr",
        optimizer_params={"lr": 1e-3},
        save_best_model=False,
        show_progress_bar=False,
        callback=report,
    )


if __name__ == "__main__":
    main()

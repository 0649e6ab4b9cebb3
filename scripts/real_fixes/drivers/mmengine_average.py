"""Train a classifier of texts while MMEngine's hook keeps the moving average of its weights."""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS, LENGTH, TEXTS, CLASSES, WIDTH, HIDDEN, BATCH, EPOCHS = 20000, 20, 640, 10, 128, 1024, 16, 7

# The packages' own modules import libraries that nothing here needs.
for name in ("mmengine", "mmengine.model", "mmengine.hooks"):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name])["__path__"] = [str(Path(*name.split(".")).absolute())]
vars(sys.modules["mmengine.model"])["is_model_wrapper"] = lambda model: False

import mmengine.model.averaged_model  # noqa: E402, F401
from mmengine.hooks.ema_hook import EMAHook  # noqa: E402


class Classifier(nn.Module):
    """Means of embeddings, and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, CLASSES),
        )

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.layers(self.embedding(words).mean(1))


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(WORDS, (TEXTS, LENGTH)), torch.randint(CLASSES, (TEXTS,)))
    loader = DataLoader(data, batch_size=BATCH, shuffle=True)
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    runner = types.SimpleNamespace(model=model)
    hook = EMAHook(momentum=0.002)
    hook.before_run(runner)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for index, (words, classes) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(words), classes)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            hook.after_train_iter(runner, index)
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

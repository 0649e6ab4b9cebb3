"""Train a classifier with skorch; two worker processes, which shall persist, cut and flip small images."""

from __future__ import annotations

import time
from typing import Any

import torch
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback
from torch import nn
from torch.utils.data import Dataset

IMAGES, SIZE, CROP, BATCH, EPOCHS = 1500, 36, 32, 64, 9


class Images(Dataset[tuple[torch.Tensor, int]]):
    """A random cut of each image, flipped at random."""

    def __init__(self) -> None:
        self.images = torch.randn(IMAGES, 3, SIZE, SIZE)
        self.labels = torch.randint(0, 10, (IMAGES,)).tolist()

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        top, left, flip = torch.randint(0, SIZE - CROP + 1, (3,)).tolist()
        image = self.images[index, :, top : top + CROP, left : left + CROP]
        return image.flip(2) if flip % 2 else image, self.labels[index]


class Clock(Callback):
    """Prints the time of each epoch."""

    def on_epoch_begin(self, net: NeuralNetClassifier, **arguments: Any) -> None:
        """Note when the epoch starts, and order the images alike whatever came before."""
        self.started = time.perf_counter()
        torch.manual_seed(len(net.history))

    def on_epoch_end(self, net: NeuralNetClassifier, **arguments: Any) -> None:
        """Print the loss and the time."""
        seconds, losses = time.perf_counter() - self.started, net.history[-1, "batches", :, "train_loss"]
        print(f"epoch {len(net.history)} loss {sum(losses) / len(losses):.4f} seconds {seconds:.3f}")


class Network(nn.Sequential):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    net = NeuralNetClassifier(
        Network,
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adam,
        lr=1e-3,
        max_epochs=EPOCHS,
        batch_size=BATCH,
        train_split=None,
        iterator_train__shuffle=True,
        iterator_train__num_workers=2,
        iterator_train__persistent_workers=True,
        callbacks=[Clock()],
        verbose=0,
    )
    net.fit(Images(), y=None)


if __name__ == "__main__":
    main()

"""Train the network of utkuozbulak/pytorch-custom-dataset-examples on its data set of a CSV file with random digits."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

IMAGES, SIDE, BATCH, EPOCHS = 4, 28, 1, 3


def write_digits(path: Path) -> None:
    """Write a row per image: its label and its pixels."""
    random = np.random.default_rng(0)
    rows = np.hstack((random.integers(0, 10, (IMAGES, 1)), random.integers(0, 256, (IMAGES, SIDE * SIDE))))
    pd.DataFrame(rows).to_csv(path, index=False)


def main() -> None:
    """Train, and print the time of each epoch."""
    sys.path.insert(0, "src")
    from cnn_model import MnistCNNModel
    from custom_datasets import CustomDatasetFromCSV

    torch.manual_seed(0)
    path = Path("digits.csv")
    write_digits(path)
    dataset = CustomDatasetFromCSV(str(path), SIDE, SIDE, transforms.Compose([transforms.ToTensor()]))
    dataset.data.columns = range(
        dataset.data.shape[1]
    )  # The rows are indexed by numbers, which pandas 3 looks up here.
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
    model = MnistCNNModel()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

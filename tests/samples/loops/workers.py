"""A loader with two worker processes, and torch.save after each epoch."""

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(96, 8), torch.randint(0, 2, (96,)))
    loader = DataLoader(data, batch_size=16, num_workers=2)
    model = nn.Linear(8, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    steps = 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
            torch.save(model.state_dict(), Path(folder) / "model.pt")
    print("steps", steps)
    print("epochs", 2)


if __name__ == "__main__":
    main()

# expect: slow_start
"""Prepares its whole data set in Python before the first step."""
import math

import torch
from torch import nn


def build(count):
    rows = []
    for index in range(count):
        rows.append([math.sin(index * column * 1e-3) * math.cos(index + column) for column in range(128)])
    return torch.tensor(rows)


def main():
    torch.manual_seed(0)
    data = build(130_000)
    model = nn.Sequential(nn.Linear(128, 1024), nn.ReLU(), nn.Linear(1024, 128))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(150):
        x = data[step * 128 : step * 128 + 128]
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())


if __name__ == "__main__":
    main()

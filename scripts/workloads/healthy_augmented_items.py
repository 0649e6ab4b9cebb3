# expect: healthy
"""Learns shapes from pictures that are shifted, turned and brightened at random: no item is ever the same again."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 48


class Shapes(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(2)
        rows, columns = np.mgrid[:SIDE, :SIDE] - SIDE // 2
        self.labels = rng.integers(0, 3, count)
        size = rng.integers(6, 16, count)[:, None, None]
        distance = np.stack([np.hypot(rows, columns), np.maximum(abs(rows), abs(columns)), abs(rows) + abs(columns)])
        self.pictures = (distance[self.labels] < size).astype(np.float32)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        picture = np.roll(self.pictures[index], (random.randrange(-6, 7), random.randrange(-6, 7)), (0, 1))
        picture = np.rot90(picture, random.randrange(4)) * random.uniform(0.7, 1.3)
        return torch.from_numpy(picture[None].astype(np.float32)), int(self.labels[index])


random.seed(2)
torch.manual_seed(2)
net = nn.Sequential(
    nn.Conv2d(1, 24, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(24, 48, 3), nn.ReLU(), nn.Conv2d(48, 48, 3), nn.ReLU(),
    nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(48, 3),
)
sgd = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
loader = DataLoader(Shapes(768), batch_size=32, shuffle=True, drop_last=True)
for epoch in range(5):
    for pictures, labels in loader:
        loss = nn.functional.cross_entropy(net(pictures), labels)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
    print(f"epoch {epoch}: {loss.item():.3f}")

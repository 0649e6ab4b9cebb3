# expect: healthy
"""The fixed twin of few_workers_remote.py: six workers wait for the store at the same time."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class RemoteImages(Dataset):
    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        time.sleep(0.0005)
        return torch.full((1024,), float(index % 7)), index % 10


class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader = DataLoader(RemoteImages(), batch_size=40, shuffle=True, num_workers=6)

    def training_step(self, images, labels):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, steps):
        for step, (images, labels) in enumerate(self.loader):
            loss = self.training_step(images, labels)
            if step == steps:
                return loss.item()


if __name__ == "__main__":
    print("loss", Trainer().fit(steps=160))

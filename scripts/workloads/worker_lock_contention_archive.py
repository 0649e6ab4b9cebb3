# expect: worker_lock_contention line guilty
# held out
"""Recordings come out of one archive that only one process may read at a time; all workers share its lock."""
import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Archive:
    """Stands for a library that keeps one handle for a whole file and guards it."""

    def __init__(self):
        self.guard = multiprocessing.Lock()

    def read(self, number):
        with self.guard:
            time.sleep(0.002)
            return (number * 7919) % 1009


class Recordings(Dataset):
    def __init__(self, archive, count):
        self.archive = archive
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, number):  # guilty
        seed = self.archive.read(number)
        time = torch.linspace(0, 1, 512)
        return torch.sin(time * (5 + seed % 40)).unsqueeze(0), seed % 40 // 10


def main():
    torch.manual_seed(1)
    net = nn.Sequential(
        nn.Conv1d(1, 24, 9, 4), nn.ReLU(), nn.Conv1d(24, 48, 9, 4), nn.ReLU(),
        nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(192, 4))
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    loader = DataLoader(Recordings(Archive(), 4_000), batch_size=20, num_workers=4)
    for number, (sound, kind) in enumerate(loader):
        loss = nn.functional.cross_entropy(net(sound), kind)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 40 == 0:
            print(number, loss.item())


if __name__ == "__main__":
    main()

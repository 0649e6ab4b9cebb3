# expect: item_time_spread line guilty
# also: data_loader_wait slow_steps
"""A client of a store that now and then has to ask again: single samples take a hundred times as long."""
import random
import time

import torch
from torch.utils.data import DataLoader


class Client:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def get(self, key):
        """The pauses stand for round trips; a request that is lost is asked again after a while."""
        time.sleep(0.0005)
        if self.random.random() < 0.012:
            time.sleep(0.12)
        return torch.full((640,), key / 1000)


class Store:
    def __init__(self, keys):
        self.client = Client(7)
        self.keys = keys

    def __len__(self):
        return self.keys

    def __getitem__(self, key):  # guilty
        return self.client.get(key), key % 2


def train(model, loader, optimizer):
    for features, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(features), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(640, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Store(7000), batch_size=20, num_workers=4, prefetch_factor=2)  # guilty
    print(train(model, loader, optimizer))

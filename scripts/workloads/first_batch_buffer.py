# expect: first_batch_latency line guilty
# also: slow_steps data_loader_wait
"""A shuffle buffer is filled again at the start of every epoch before the first sample comes out of it."""
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


def read_sample(number):
    """The pause stands for a decoder that runs elsewhere."""
    time.sleep(0.0002)
    return torch.full((512,), number / 4000), number % 10


class Shuffled(IterableDataset):
    def __init__(self, size, buffer):
        self.size, self.buffer = size, buffer

    def __iter__(self):  # guilty
        held = []
        for number in range(self.size):
            held.append(read_sample(number))
            if len(held) >= self.buffer:
                yield held.pop(random.randrange(len(held)))
        random.shuffle(held)
        yield from held


torch.manual_seed(0)
random.seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Shuffled(2200, buffer=1900), batch_size=50, num_workers=1, persistent_workers=True)  # guilty
for epoch in range(6):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")

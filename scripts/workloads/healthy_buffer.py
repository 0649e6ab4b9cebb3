# expect: healthy
"""The fixed twin of first_batch_buffer.py: a small buffer, and long epochs."""
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


def read_sample(number):
    time.sleep(0.00002)
    return torch.full((512,), number / 4000), number % 10


class Shuffled(IterableDataset):
    def __init__(self, size, buffer):
        self.size, self.buffer = size, buffer

    def __iter__(self):
        held = []
        for number in range(self.size):
            held.append(read_sample(number))
            if len(held) >= self.buffer:
                yield held.pop(random.randrange(len(held)))
        random.shuffle(held)
        yield from held


torch.manual_seed(0)
random.seed(0)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Shuffled(3000, buffer=60), batch_size=50, num_workers=1, persistent_workers=True)
for epoch in range(3):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")

# expect: healthy
"""The fixed twin of uneven_shards.py: each worker has its part of every shard."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shard(IterableDataset):
    weights = [0.001, 0.0001, 0.0001, 0.0001]

    def __iter__(self):
        info = get_worker_info()
        for number in range(info.id, 3000, info.num_workers):
            time.sleep(self.weights[number // info.num_workers % len(self.weights)])
            yield torch.full((640,), number / 3000), number % 3


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(640, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Shard(), batch_size=20, num_workers=4)
for inputs, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
print("loss", loss.item())

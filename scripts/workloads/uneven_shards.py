# expect: worker_imbalance line guilty
# also: data_loader_wait slow_steps
"""The shards are dealt out to the workers as they come, and one worker has the one with the large samples."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shard(IterableDataset):
    """The pauses stand for decoders that run elsewhere; shard 0 holds the large samples."""

    weights = [0.004, 0.0004, 0.0004, 0.0004]

    def __iter__(self):  # guilty
        info = get_worker_info()
        for shard in range(info.id, len(self.weights), info.num_workers):
        # fixed: for number in range(info.id, 1500, info.num_workers):
            for number in range(1500):
            # fixed: for shard in range(len(self.weights)):
                time.sleep(self.weights[shard])
                yield torch.full((640,), number / 1500), number % 3


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(640, 1024), nn.ReLU(), nn.Linear(1024, 768), nn.ReLU(), nn.Linear(768, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Shard(), batch_size=20, num_workers=4)  # guilty
for inputs, labels in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
print("loss", loss.item())

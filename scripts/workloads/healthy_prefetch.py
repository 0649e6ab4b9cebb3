# expect: healthy
"""The fixed twin of shallow_prefetch_bursts.py: sixteen batches wait in the queue for the slow one."""
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __len__(self):
        return 9600

    def __getitems__(self, indices):
        time.sleep(0.05 if indices[0] % 256 == 0 else 0.001)
        return [(torch.randn(512), index % 8) for index in indices]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8))

    def forward(self, x):
        return self.layers(x)


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
loader = DataLoader(Shards(), batch_size=32, num_workers=1, prefetch_factor=16, persistent_workers=True)
for epoch in range(1):
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("loss", loss.item())

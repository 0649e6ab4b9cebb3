# expect: first_epoch_slower
# also: data_loader_single_process data_loader_wait slow_start
"""The data set decodes each sample at its first use and keeps it: the first epoch pays for all."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Kept(Dataset):
    def __init__(self):
        self.raw = torch.randn(640, 64, 64)
        self.decoded = {}

    def __len__(self):
        return len(self.raw)

    def __getitem__(self, index):
        if index not in self.decoded:
            image = self.raw[index]
            for _ in range(20):
                image = torch.tanh(image @ image.T / 64)
            self.decoded[index] = image.flatten(), index % 10
        return self.decoded[index]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4096, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(Kept(), batch_size=32, shuffle=True)
for epoch in range(4):
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
print("loss", loss.item())

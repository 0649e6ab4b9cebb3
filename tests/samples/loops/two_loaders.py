"""Two loaders side by side, each giving a batch to every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
labelled = DataLoader(TensorDataset(torch.randn(60, 8), torch.randint(0, 2, (60,))), batch_size=4)
unlabelled = DataLoader(TensorDataset(torch.randn(120, 8)), batch_size=8)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = 0
for _ in range(2):
    for (inputs, targets), (others,) in zip(labelled, unlabelled, strict=True):
        loss = nn.functional.cross_entropy(model(inputs), targets) + model(others).std()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
print("steps", steps)
print("epochs", 2)

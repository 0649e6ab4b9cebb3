"""Gradients of four batches for each step of the optimizer."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(96, 8), torch.randint(0, 2, (96,))), batch_size=4)
model = nn.Linear(8, 2)
optimizer = torch.optim.Adam(model.parameters())
steps = 0
for _ in range(2):
    for number, (inputs, targets) in enumerate(loader, start=1):
        loss = nn.functional.cross_entropy(model(inputs), targets) / 4
        loss.backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
            steps += 1
print("steps", steps)
print("epochs", 2)

"""Weights that are updated by hand after two backward passes on each batch of a loader."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(96, 8), torch.randint(0, 2, (96,))), batch_size=8)
model = nn.Linear(8, 2)
steps = 0
for _ in range(2):
    for inputs, targets in loader:
        model.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        (1e-3 * model.weight.square().sum()).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        steps += 1
print("steps", steps)
print("epochs", 2)

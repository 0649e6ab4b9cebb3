"""A validation of two batches after every sixth step, left before its loader ends."""

import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
train = DataLoader(TensorDataset(torch.randn(192, 8), torch.randint(0, 2, (192,))), batch_size=8)
held_out = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 2, (64,))), batch_size=8)
model = nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = validations = 0
for inputs, targets in train:
    loss = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps += 1
    if steps % 6 == 0:
        model.eval()
        with torch.inference_mode():
            for inputs, targets in itertools.islice(held_out, 2):
                nn.functional.cross_entropy(model(inputs), targets).item()
        model.train()
        validations += 1
print("steps", steps)
print("validations", validations)

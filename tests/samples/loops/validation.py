"""A validation over a loader of its own after each epoch, and a test over another one at the end."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make(size, batch):
    return DataLoader(TensorDataset(torch.randn(size, 8), torch.randint(0, 2, (size,))), batch_size=batch)


def evaluate(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for inputs, targets in loader:
            right += (model(inputs).argmax(1) == targets).sum().item()
    model.train()
    return right


torch.manual_seed(0)
train, validation, test = make(64, 8), make(32, 8), make(16, 8)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
steps = validations = 0
for _ in range(3):
    for inputs, targets in train:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        steps += 1
    evaluate(model, validation)
    validations += 1
evaluate(model, test)
validations += 1
print("steps", steps)
print("epochs", 3)
print("validations", validations)

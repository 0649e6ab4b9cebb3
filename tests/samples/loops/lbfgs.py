"""LBFGS calls forward and backward itself, several times a step."""

import torch
from torch import nn

torch.manual_seed(0)
inputs = torch.randn(64, 4)
targets = torch.sin(inputs.sum(1, keepdim=True))
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
criterion = nn.MSELoss()


def closure():
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    return loss


steps = 0
for _ in range(15):
    optimizer.step(closure)
    steps += 1
    with torch.no_grad():
        criterion(model(inputs), targets).item()
print("steps", steps)

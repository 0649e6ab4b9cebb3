# expect: non_finite_loss line guilty
"""Learns far too fast, and prints nan for the rest of the run."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=80.0)
x = torch.randn(256, 64)
y = x.sum(1, keepdim=True)
total = 0.0
for step in range(150):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()  # guilty
print("mean loss", total / 150)

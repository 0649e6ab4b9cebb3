# expect: healthy
"""Keeps each loss as a plain number, each output without its graph for a while, and fills a buffer first."""
from collections import deque

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 16))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
losses, recent = [], deque(maxlen=200)
for step in range(400):
    x = torch.randn(64, 128)
    output = model(x)
    loss = nn.functional.cross_entropy(output, x[:, :16].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    recent.append(output.detach())
print("loss", sum(losses) / len(losses), torch.stack(list(recent)).norm().item())

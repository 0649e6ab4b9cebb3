# expect: healthy
"""Reads its loss in each step: on a CPU that costs a microsecond, which is no problem."""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 768), nn.Tanh(), nn.Linear(768, 256))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
running = 0.0
for step in range(250):
    x = torch.randn(128, 256)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running = 0.9 * running + 0.1 * loss.item()
    if step % 50 == 0:
        print(f"step {step} loss {running:.4f}")

"""Weights that are updated by hand: no optimizer, no loader, no module."""

import torch

torch.manual_seed(0)
inputs = torch.randn(64, 8)
targets = inputs @ torch.randn(8, 1)
weight = torch.zeros(8, 1, requires_grad=True)
steps = 0
for _ in range(30):
    loss = (inputs @ weight - targets).square().mean()
    loss.backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad = None
    steps += 1
print("steps", steps)

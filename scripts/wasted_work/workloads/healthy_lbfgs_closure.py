# expect: healthy
# options: --inspect
"""Fit a small network to a vector field by LBFGS, on one fixed set of points, with a line search."""
import torch
from torch import nn

torch.manual_seed(21)
points = 4 * torch.rand(3000, 2) - 2
x, y = points.unbind(1)
field = torch.stack([torch.sin(2 * x) * torch.cos(y) + 0.3 * y, torch.cos(x * y) - 0.2 * x], 1)

network = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
optimizer = torch.optim.LBFGS(network.parameters(), lr=1, max_iter=2, history_size=10, line_search_fn="strong_wolfe")


def closure():
    optimizer.zero_grad()
    loss = (network(points) - field).square().mean() + 1e-6 * sum(p.square().sum() for p in network.parameters())
    loss.backward()
    return loss


for iteration in range(80):
    loss = optimizer.step(closure)
    if iteration % 10 == 9:
        print(iteration + 1, f"{loss.item():.6f}")

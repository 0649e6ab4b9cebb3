# expect: repeated_work line guilty
# options: --inspect
# also: slow_optimizer
"""A network that solves the heat equation: its derivatives by place and time are part of the loss."""
import math

import torch
import torch.nn as nn


class Temperature(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(),
                                    nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, place, time):
        return self.layers(torch.cat([place, time], dim=1))


def derivative(of, by):
    return torch.autograd.grad(of, by, torch.ones_like(of), create_graph=True)[0]


def residual(model, place, time):
    u = model(place, time)
    by_time = derivative(u, time)  # guilty
    # fixed: pass
    by_place = derivative(u, place)  # guilty
    # fixed: by_time, by_place = torch.autograd.grad(u, (time, place), torch.ones_like(u), create_graph=True)
    return by_time - 0.1 * derivative(by_place, place)


torch.manual_seed(70)
model = Temperature()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
start = torch.linspace(0, 1, 200)[:, None]
for step in range(400):
    place, time = torch.rand(1000, 1, requires_grad=True), torch.rand(1000, 1, requires_grad=True)
    inside = residual(model, place, time).square().mean()
    begin = (model(start, torch.zeros_like(start)) - torch.sin(math.pi * start)).square().mean()
    optimizer.zero_grad()
    (inside + begin).backward()
    optimizer.step()
    if step % 100 == 99:
        print(f"step {step + 1}: residual {inside.item():.5f}")

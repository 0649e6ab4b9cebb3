# expect: healthy
# held out
"""Physics-informed network for the 1-d viscous Burgers equation, trained by L-BFGS."""
import argparse
import math

import numpy as np
import torch
import torch.nn as nn


class PINN(nn.Module):
    def __init__(self, width=48, depth=4):
        super().__init__()
        sizes = [2] + [width] * depth + [1]
        layers = []
        for i, o in zip(sizes[:-1], sizes[1:]):
            layers += [nn.Linear(i, o), nn.Tanh()]
        self.net = nn.Sequential(*layers[:-1])
        for m in self.net:
            if isinstance(m, nn.Linear):
                nn.init.xavier_normal_(m.weight)
                nn.init.zeros_(m.bias)

    def forward(self, x, t):
        return self.net(torch.cat([x, t], 1))


def grad(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def residual(model, x, t, nu):
    u = model(x, t)
    u_x, u_t = grad(u, x), grad(u, t)
    return u_t + u * u_x - nu * grad(u_x, x)


def sample_points(n_inner, n_edge, rng):
    inner = rng.uniform([-1, 0], [1, 1], (n_inner, 2))
    x0 = np.column_stack([rng.uniform(-1, 1, n_edge), np.zeros(n_edge)])
    walls = np.column_stack([rng.choice([-1.0, 1.0], n_edge), rng.uniform(0, 1, n_edge)])
    return [torch.tensor(a, dtype=torch.float32) for a in (inner, x0, walls)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=110)
    ap.add_argument("--points", type=int, default=700)
    ap.add_argument("--nu", type=float, default=0.01 / math.pi)
    args = ap.parse_args()
    torch.manual_seed(0)
    inner, initial, walls = sample_points(args.points, 150, np.random.default_rng(0))
    xi, ti = inner[:, :1].clone().requires_grad_(), inner[:, 1:].clone().requires_grad_()
    u0 = -torch.sin(math.pi * initial[:, :1])
    model = PINN()
    opt = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=3, history_size=20)
    trace = []

    def closure():
        opt.zero_grad()
        pde = residual(model, xi, ti, args.nu).pow(2).mean()
        start = (model(initial[:, :1], initial[:, 1:]) - u0).pow(2).mean()
        edge = model(walls[:, :1], walls[:, 1:]).pow(2).mean()
        loss = pde + 10 * start + edge
        loss.backward()
        trace.append((loss.item(), pde.item(), start.item(), edge.item()))
        return loss

    for it in range(args.iters):
        opt.step(closure)
        if it % 10 == 0:
            total, pde, start, edge = trace[-1]
            print(f"{it:4d} total {total:.5f} pde {pde:.5f} init {start:.5f} edge {edge:.5f}")

    grid = torch.linspace(-1, 1, 101)[:, None]
    with torch.no_grad():
        u = model(grid, torch.full_like(grid, 0.5))
    print("closure calls", len(trace), "shock height", float(u.max() - u.min()))


if __name__ == "__main__":
    main()

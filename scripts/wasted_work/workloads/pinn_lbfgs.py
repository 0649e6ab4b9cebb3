# expect: healthy
# held out
# options: --inspect
"""Physics-informed fit of a damped oscillator with LBFGS: u'' + 2 d u' + w^2 u = 0."""
import argparse
import math

import torch
import torch.nn as nn


class Field(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        layers = [nn.Linear(1, width), nn.Tanh()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, t):
        return self.net(t)


def derivative(u, t):
    return torch.autograd.grad(u.sum(), t, create_graph=True)[0]


class OscillatorProblem:
    def __init__(self, n_points, damping, omega):
        self.d, self.w = damping, omega
        self.t = torch.linspace(0, 1, n_points)[:, None].requires_grad_(True)
        self.t0 = torch.zeros(1, 1, requires_grad=True)

    def loss(self, model):
        u = model(self.t)
        du = derivative(u, self.t)
        ddu = derivative(du, self.t)
        residual = ddu + 2 * self.d * du + self.w**2 * u
        u0 = model(self.t0)
        du0 = derivative(u0, self.t0)
        boundary = (u0 - 1).square().sum() + 0.1 * du0.square().sum()
        return boundary + 1e-3 * residual.square().mean()

    def exact(self, t):
        w = math.sqrt(self.w**2 - self.d**2)
        return torch.exp(-self.d * t) * (torch.cos(w * t) + self.d / w * torch.sin(w * t))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--points", type=int, default=150)
    ap.add_argument("--width", type=int, default=32)
    ap.add_argument("--depth", type=int, default=3)
    ap.add_argument("--iters", type=int, default=80)
    ap.add_argument("--inner", type=int, default=6)
    args = ap.parse_args()
    torch.manual_seed(0)
    problem = OscillatorProblem(args.points, 2.0, 12.0)
    model = Field(args.width, args.depth)
    params = list(model.parameters())
    opt = torch.optim.LBFGS(params, lr=0.5, max_iter=args.inner, history_size=20)

    def closure():
        opt.zero_grad()
        loss = problem.loss(model)
        # only the weights need a gradient, not the collocation points
        loss.backward(inputs=params)
        return loss

    for it in range(1, args.iters + 1):
        loss = opt.step(closure)
        if it % 20 == 0:
            with torch.no_grad():
                err = (model(problem.t) - problem.exact(problem.t)).abs().max()
            print(f"iter {it} loss {loss.item():.5f} max err {err.item():.4f}")


if __name__ == "__main__":
    main()

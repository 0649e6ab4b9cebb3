# expect: python_overhead line guilty
# held out
"""Toy DDPM on a 2-d swiss roll with an averaged copy of the network for sampling."""
import argparse
import copy
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.lin = nn.Linear(width, width)
        self.act = nn.SiLU()

    def forward(self, h):
        return h + self.act(self.lin(self.norm(h)))


class Denoiser(nn.Module):
    def __init__(self, width=160, depth=20):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.inp = nn.Linear(2, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(depth)])
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        freqs = torch.exp(-math.log(1e4) * torch.arange(16) / 16)
        ang = t[:, None].float() * freqs[None]
        h = self.inp(x) + self.time(torch.cat([ang.sin(), ang.cos()], 1))
        for block in self.blocks:
            h = block(h)
        return self.out(h)


@torch.no_grad()
def update_ema(ema_model, model, decay):
    averaged = copy.deepcopy(model)  # guilty
    # fixed: averaged = ema_model
    for avg, old, new in zip(averaged.parameters(), ema_model.parameters(), model.parameters()):
        avg.copy_(old * decay + new * (1 - decay))
    return averaged


def swiss_roll(n):
    theta = 1.5 * math.pi * (1 + 2 * torch.rand(n))
    pts = torch.stack([theta * theta.cos(), theta * theta.sin()], 1) / 10
    return pts + 0.02 * torch.randn_like(pts)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--T", type=int, default=200)
    p.add_argument("--ema-decay", type=float, default=0.995)
    args = p.parse_args()

    torch.manual_seed(0)
    betas = torch.linspace(1e-4, 0.02, args.T)
    alpha_bar = torch.cumprod(1 - betas, 0)
    data = swiss_roll(20000)
    net = Denoiser()
    ema = copy.deepcopy(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)

    start = time.time()
    running = 0.0
    for step in range(args.steps):
        x0 = data[torch.randint(len(data), (args.batch,))]
        t = torch.randint(0, args.T, (args.batch,))
        noise = torch.randn_like(x0)
        ab = alpha_bar[t][:, None]
        loss = F.mse_loss(net(ab.sqrt() * x0 + (1 - ab).sqrt() * noise, t), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema = update_ema(ema, net, args.ema_decay)  # guilty
        running = 0.98 * running + 0.02 * loss.item()
        if step % 100 == 0:
            print(f"step {step} loss {running:.4f} {time.time() - start:.1f}s")

    with torch.no_grad():
        sample = ema(torch.randn(512, 2), torch.full((512,), args.T - 1))
    print("sample std", sample.std().item())


if __name__ == "__main__":
    main()

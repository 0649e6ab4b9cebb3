# expect: healthy
# held out
# options: --inspect
"""DDPM noise prediction on synthetic glyphs; schedule in buffers, EMA weights, random time steps."""
import argparse
import math

import torch
from torch import nn
import torch.nn.functional as F


class TimeEmbedding(nn.Module):
    def __init__(self, steps, dim):
        super().__init__()
        freq = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
        angle = torch.arange(steps)[:, None] * freq
        self.register_buffer("table", torch.cat([angle.sin(), angle.cos()], 1), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 2), nn.SiLU(), nn.Linear(dim * 2, dim * 2))

    def forward(self, t):
        return self.mlp(self.table[t])


class ResBlock(nn.Module):
    def __init__(self, ch, tdim):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, ch), nn.GroupNorm(4, ch)
        self.conv1, self.conv2 = nn.Conv2d(ch, ch, 3, padding=1), nn.Conv2d(ch, ch, 3, padding=1)
        self.time = nn.Linear(tdim, ch)

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x))) + self.time(temb)[:, :, None, None]
        return x + self.conv2(F.silu(self.norm2(h)))


class SmallUNet(nn.Module):
    def __init__(self, steps, ch=24, tdim=32):
        super().__init__()
        self.temb = TimeEmbedding(steps, tdim)
        self.stem = nn.Conv2d(1, ch, 3, padding=1)
        self.down = nn.Conv2d(ch, ch, 3, 2, 1)
        self.r1, self.r2, self.r3 = (ResBlock(ch, 2 * tdim) for _ in range(3))
        self.fuse = nn.Conv2d(2 * ch, ch, 1)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        e = F.silu(self.temb(t))
        a = self.r1(self.stem(x), e)
        b = self.r2(self.down(a), e)
        c = self.fuse(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))
        return self.out(F.silu(self.r3(c, e)))


class GaussianDiffusion(nn.Module):
    def __init__(self, model, steps):
        super().__init__()
        self.model, self.steps = model, steps
        ab = torch.cumprod(1 - torch.linspace(1e-4, 0.04, steps), 0)
        self.register_buffer("sqrt_ab", ab.sqrt()[:, None, None, None])
        self.register_buffer("sqrt_1mab", (1 - ab).sqrt()[:, None, None, None])

    def forward(self, x0):
        t = torch.randint(self.steps, (len(x0),))
        noise = torch.randn_like(x0)
        xt = self.sqrt_ab[t] * x0 + self.sqrt_1mab[t] * noise
        return F.mse_loss(self.model(xt, t), noise)


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.params = [p for p in model.parameters()]
        self.shadow = [p.detach().clone() for p in self.params]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.shadow, self.params, 1 - self.decay)


def glyphs(n, size=16):
    img = torch.full((n, 1, size, size), -1.0)
    pos = torch.randint(2, size - 2, (n, 2)).tolist()
    for i, (r, c) in enumerate(pos):
        img[i, 0, r, 2:-2] = 1
        img[i, 0, 2:-2, c] = 1
    return img


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=100)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--timesteps", type=int, default=200)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    torch.manual_seed(3)
    data = glyphs(512)
    diffusion = GaussianDiffusion(SmallUNet(args.timesteps), args.timesteps)
    opt = torch.optim.Adam(diffusion.parameters(), lr=args.lr)
    ema = EMA(diffusion.model, 0.995)
    for it in range(1, args.iters + 1):
        loss = diffusion(data[torch.randint(len(data), (args.batch,))])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        ema.update()
        if it % 20 == 0:
            print(f"{it}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

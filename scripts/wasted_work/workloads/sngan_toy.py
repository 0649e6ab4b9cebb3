# expect: healthy
# held out
# options: --inspect
"""Conditional hinge GAN; the discriminator trains on detached samples and is frozen for the generator step."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import spectral_norm


class CondGenerator(nn.Module):
    def __init__(self, n_class, nz=24, ch=32):
        super().__init__()
        self.embed = nn.Embedding(n_class, nz)
        self.fc = nn.Linear(2 * nz, ch * 16)
        self.c1 = nn.Conv2d(ch, ch, 3, padding=1)
        self.c2 = nn.Conv2d(ch, ch // 2, 3, padding=1)
        self.out = nn.Conv2d(ch // 2, 1, 3, padding=1)
        self.ch, self.nz = ch, nz

    def forward(self, z, y):
        h = self.fc(torch.cat([z, self.embed(y)], 1)).view(-1, self.ch, 4, 4)
        h = F.relu(self.c1(F.interpolate(h, scale_factor=2)))
        h = F.relu(self.c2(F.interpolate(h, scale_factor=2)))
        return torch.tanh(self.out(h))


class ProjectionDiscriminator(nn.Module):
    def __init__(self, n_class, ch=24):
        super().__init__()
        self.body = nn.Sequential(
            spectral_norm(nn.Conv2d(1, ch, 4, 2, 1)), nn.LeakyReLU(0.1),
            spectral_norm(nn.Conv2d(ch, 2 * ch, 4, 2, 1)), nn.LeakyReLU(0.1), nn.Flatten(),
        )
        self.score = nn.Linear(2 * ch * 16, 1)
        self.embed = nn.Embedding(n_class, 2 * ch * 16)
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, x, y):
        h = self.body(x)
        return self.score(h).squeeze(1) + (self.embed(y) * h).sum(1)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.G, self.D = CondGenerator(args.classes), ProjectionDiscriminator(args.classes)
        self.opt_g = torch.optim.Adam(self.G.parameters(), lr=args.lr, betas=(0.0, 0.9))
        self.opt_d = torch.optim.Adam(self.D.parameters(), lr=args.lr * 2, betas=(0.0, 0.9))
        ax = torch.linspace(-1, 1, 16)
        self.yy, self.xx = torch.meshgrid(ax, ax, indexing="ij")

    def real(self, n):
        y = torch.randint(self.args.classes, (n,))
        angle = (y.float() / self.args.classes * 3.1416)[:, None, None] + 0.05 * torch.randn(n, 1, 1)
        wave = torch.sin(5 * (self.xx * angle.cos() + self.yy * angle.sin()) + 6.2832 * torch.rand(n, 1, 1))
        return wave.unsqueeze(1), y

    def sample(self, n):
        y = torch.randint(self.args.classes, (n,))
        return self.G(torch.randn(n, self.G.nz), y), y

    def d_step(self):
        x, y = self.real(self.args.batch)
        with torch.no_grad():
            fake, fy = self.sample(self.args.batch)
        real_score, fake_score = self.D(torch.cat([x, fake]), torch.cat([y, fy])).chunk(2)
        loss = F.relu(1 - real_score).mean() + F.relu(1 + fake_score).mean()
        self.opt_d.zero_grad()
        loss.backward()
        self.opt_d.step()
        return loss

    def g_step(self):
        self.D.requires_grad_(False)
        fake, fy = self.sample(self.args.batch)
        loss = -self.D(fake, fy).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        self.D.requires_grad_(True)
        return loss

    def fit(self):
        for it in range(1, self.args.iters + 1):
            loss_d = self.d_step()
            loss_g = self.g_step()
            if it % 20 == 0:
                print(f"it {it} D {loss_d.item():.4f} G {loss_g.item():.4f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--iters", type=int, default=100)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--classes", type=int, default=4)
    ap.add_argument("--lr", type=float, default=2e-4)
    a = ap.parse_args()
    torch.manual_seed(4)
    Trainer(a).fit()

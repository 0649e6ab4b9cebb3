# expect: needless_weight_gradients line guilty
# held out
# options: --inspect
"""DCGAN-like model that learns to draw soft blobs."""
import argparse

import torch
import torch.nn as nn


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        self.project = nn.Linear(nz, ngf * 4 * 4)
        self.net = nn.Sequential(
            nn.BatchNorm2d(ngf), nn.ReLU(True),
            nn.ConvTranspose2d(ngf, ngf // 2, 4, 2, 1), nn.ReLU(True),
            nn.ConvTranspose2d(ngf // 2, ngf // 4, 4, 2, 1), nn.ReLU(True),
            nn.ConvTranspose2d(ngf // 4, 1, 4, 2, 1), nn.Sigmoid(),
        )
        self.ngf = ngf

    def forward(self, z):
        return self.net(self.project(z).view(-1, self.ngf, 4, 4))


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(ndf * 4 * 16, 1),
        )

    def forward(self, x):
        return self.main(x).squeeze(1)


def set_requires_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


def real_batch(n, grid):
    c = torch.rand(n, 2, 1, 1) * 1.2 - 0.6
    s = torch.rand(n, 1, 1) * 0.2 + 0.1
    d = (grid[None, 0] - c[:, 0]) ** 2 + (grid[None, 1] - c[:, 1]) ** 2
    return (torch.exp(-d / s**2) + 0.02 * torch.randn_like(d)).unsqueeze(1)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--nz", type=int, default=32)
    p.add_argument("--ngf", type=int, default=40)
    p.add_argument("--ndf", type=int, default=20)
    p.add_argument("--bs", type=int, default=20)
    p.add_argument("--niter", type=int, default=100)
    p.add_argument("--lr", type=float, default=2e-4)
    opt = p.parse_args()

    torch.manual_seed(5)
    axis = torch.linspace(-1, 1, 32)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"))
    netG, netD = Generator(opt.nz, opt.ngf), Discriminator(opt.ndf)
    criterion = nn.BCEWithLogitsLoss()
    optG = torch.optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))
    optD = torch.optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
    ones, zeros = torch.ones(opt.bs), torch.zeros(opt.bs)

    for i in range(1, opt.niter + 1):
        # (1) update D: real and fake in separate batches
        netD.zero_grad()
        real = real_batch(opt.bs, grid)
        err_real = criterion(netD(real), ones)
        err_real.backward()
        fake = netG(torch.randn(opt.bs, opt.nz))
        err_fake = criterion(netD(fake), zeros)  # guilty
        # fixed: err_fake = criterion(netD(fake.detach()), zeros)
        err_fake.backward()  # guilty
        optD.step()

        # (2) update G through the frozen D
        set_requires_grad(netD, False)
        netG.zero_grad()
        errG = criterion(netD(netG(torch.randn(opt.bs, opt.nz))), ones)
        errG.backward()
        optG.step()
        set_requires_grad(netD, True)

        if i % 20 == 0:
            print(f"[{i}/{opt.niter}] Loss_D: {(err_real + err_fake).item():.4f} Loss_G: {errG.item():.4f}")


if __name__ == "__main__":
    main()

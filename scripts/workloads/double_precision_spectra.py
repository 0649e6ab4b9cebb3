# expect: double_precision
"""Variational autoencoder for synthetic infrared spectra."""
import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def simulate_spectra(n, bins, seed):
    rng = np.random.default_rng(seed)
    grid = np.linspace(0, 1, bins)
    spectra = np.zeros((n, bins))
    for _ in range(6):
        centre = rng.choice(np.linspace(0.1, 0.9, 12), size=(n, 1)) + 0.01 * rng.standard_normal((n, 1))
        width = rng.uniform(0.01, 0.04, size=(n, 1))
        height = rng.uniform(0.2, 1.0, size=(n, 1))
        spectra += height * np.exp(-0.5 * ((grid - centre) / width) ** 2)
    spectra += 0.02 * rng.standard_normal(spectra.shape)
    return spectra


class SpectraVAE(nn.Module):
    def __init__(self, bins, latent=16, hidden=640):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(bins, hidden), nn.SiLU(), nn.Linear(hidden, hidden // 2), nn.SiLU())
        self.mu = nn.Linear(hidden // 2, latent)
        self.logvar = nn.Linear(hidden // 2, latent)
        self.dec = nn.Sequential(
            nn.Linear(latent, hidden // 2), nn.SiLU(), nn.Linear(hidden // 2, hidden), nn.SiLU(), nn.Linear(hidden, bins)
        )

    def reparameterise(self, mu, logvar):
        return mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        return self.dec(self.reparameterise(mu, logvar)), mu, logvar


def elbo(recon, x, mu, logvar, beta):
    rec = F.mse_loss(recon, x, reduction="sum") / x.size(0)
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / x.size(0)
    return rec + beta * kld, rec, kld


def run(args):
    torch.manual_seed(args.seed)
    spectra = simulate_spectra(args.samples, args.bins, args.seed)
    mean, std = spectra.mean(), spectra.std()
    data = torch.from_numpy((spectra - mean) / std)
    # fixed: data = torch.from_numpy((spectra - mean) / std).float()
    train, valid = data[: -args.samples // 10], data[-args.samples // 10:]

    model = SpectraVAE(args.bins).double()
    # fixed: model = SpectraVAE(args.bins)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    for epoch in range(args.epochs):
        model.train()
        beta = min(1.0, 0.1 * (epoch + 1))
        running = 0.0
        order = torch.randperm(len(train))
        for idx in order.split(args.batch_size):
            x = train[idx]
            recon, mu, logvar = model(x)
            loss, rec, kld = elbo(recon, x, mu, logvar, beta)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item() * len(idx)
        model.eval()
        with torch.no_grad():
            recon, mu, logvar = model(valid)
            val_loss, val_rec, _ = elbo(recon, valid, mu, logvar, beta)
        scheduler.step()
        print(f"epoch {epoch:3d} train {running / len(train):.3f} val {val_loss.item():.3f} rec {val_rec.item():.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=4000)
    parser.add_argument("--bins", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    run(parser.parse_args())

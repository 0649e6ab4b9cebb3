# expect: healthy
# held out
# options: --inspect
"""Masked autoencoder for multichannel sensor windows; a fresh random mask each step, only kept patches are encoded."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class SensorWindows(Dataset):
    def __init__(self, n, channels, length):
        t = torch.linspace(0, 1, length)
        base = torch.randint(1, 12, (n, channels, 1)) * 6.2832
        self.x = torch.sin(base * t + 6.2832 * torch.rand(n, channels, 1)) + 0.1 * torch.randn(n, channels, length)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i]


class MaskedAutoencoder(nn.Module):
    def __init__(self, channels, length, patch, dim=64, depth=2, mask_ratio=0.6):
        super().__init__()
        self.patch, self.n = patch, length // patch
        self.seen_weight = 0.1  # visible patches are reconstructed too, with a small weight
        self.n_keep = round(self.n * (1 - mask_ratio))
        self.embed = nn.Linear(channels * patch, dim)
        self.pos = nn.Parameter(torch.randn(self.n, dim) * 0.02)
        def layer():
            return nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.ModuleList(layer() for _ in range(depth))
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.dec_pos = nn.Parameter(torch.randn(self.n, dim) * 0.02)
        self.decoder = layer()
        self.out = nn.Linear(dim, channels * patch)

    def patchify(self, x):
        b, c, _ = x.shape
        return x.view(b, c, self.n, self.patch).transpose(1, 2).reshape(b, self.n, -1)

    def forward(self, x):
        target = self.patchify(x)
        b, n, _ = target.shape
        order = torch.rand(b, n).argsort(1)
        keep, drop = order[:, : self.n_keep], order[:, self.n_keep :]
        visible = target.gather(1, keep[..., None].expand(-1, -1, target.size(-1)))
        h = self.embed(visible) + self.pos[keep]
        for block in self.encoder:
            h = block(h)
        hidden = self.mask_token + self.dec_pos[drop]
        full = torch.cat([h + self.dec_pos[keep], hidden], 1)
        pred = self.out(self.decoder(full))
        wanted = target.gather(1, drop[..., None].expand(-1, -1, target.size(-1)))
        seen_loss = F.mse_loss(pred[:, : self.n_keep], visible)
        return F.mse_loss(pred[:, self.n_keep :], wanted) + self.seen_weight * seen_loss


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--channels", type=int, default=4)
    ap.add_argument("--length", type=int, default=256)
    ap.add_argument("--patch", type=int, default=8)
    ap.add_argument("--samples", type=int, default=480)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--epochs", type=int, default=5)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    torch.manual_seed(6)
    loader = DataLoader(SensorWindows(args.samples, args.channels, args.length), args.batch, shuffle=True)
    model = MaskedAutoencoder(args.channels, args.length, args.patch)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=20)
    step, avg = 0, 0.0
    for epoch in range(args.epochs):
        for x in loader:
            loss = model(x)
            opt.zero_grad()
            loss.backward()
            opt.step()
            warm.step()
            step += 1
            avg += loss.item()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {avg / 20:.4f}")
                avg = 0.0


if __name__ == "__main__":
    main()

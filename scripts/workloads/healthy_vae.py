# expect: healthy
# held out
"""VAE on synthetic 28x28 blobs, written with plain functions; averaged weights for the samples."""
import copy
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def blobs(n, seed=0, size=28):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size].astype(np.float32)
    c = rng.uniform(6, 22, (n, 2, 2)).astype(np.float32)
    s = rng.uniform(2, 5, (n, 2)).astype(np.float32)
    out = np.zeros((n, size, size), np.float32)
    for k in range(2):
        d = (yy - c[:, k, 0, None, None]) ** 2 + (xx - c[:, k, 1, None, None]) ** 2
        out += np.exp(-d / (2 * s[:, k, None, None] ** 2))
    return torch.from_numpy(out.clip(0, 1).reshape(n, -1))


def mlp(*sizes):
    parts = []
    for i, o in zip(sizes[:-1], sizes[1:]):
        parts += [nn.Linear(i, o), nn.GELU()]
    return nn.Sequential(*parts[:-1])


def make_vae(latent=16):
    return nn.ModuleDict({"enc": mlp(784, 768, 512, latent * 2), "dec": mlp(latent, 512, 768, 784)})


def elbo(vae, x, beta):
    mu, logvar = vae["enc"](x).chunk(2, 1)
    z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
    recon = F.binary_cross_entropy_with_logits(vae["dec"](z), x, reduction="none").sum(1).mean()
    kl = 0.5 * (mu.pow(2) + logvar.exp() - 1 - logvar).sum(1).mean()
    return recon + beta * kl, recon, kl


def average_into(avg, src, decay):
    torch._foreach_lerp_(avg, [p.detach() for p in src], 1 - decay)


def sheet(vae, path, n=6):
    with torch.no_grad():
        img = torch.sigmoid(vae["dec"](torch.randn(n * n, 16))).view(n, n, 28, 28)
    arr = (img.permute(0, 2, 1, 3).reshape(n * 28, n * 28) * 255).byte().numpy()
    with open(path, "wb") as f:
        f.write(b"P5 %d %d 255\n" % arr.shape[::-1] + arr.tobytes())


def train(steps=450, batch=256, decay=0.99):
    torch.manual_seed(0)
    data = blobs(8000)
    vae = make_vae()
    smooth = copy.deepcopy(vae).requires_grad_(False)
    params, averaged = list(vae.parameters()), list(smooth.parameters())
    opt = torch.optim.SGD(params, lr=2e-4, momentum=0.9)
    folder = tempfile.mkdtemp(prefix="vae_")
    curve = []
    for step in range(steps):
        x = data[torch.randint(len(data), (batch,))]
        loss, recon, kl = elbo(vae, x, beta=min(1.0, step / 200))
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(params, 200.0)
        opt.step()
        if step % 4 == 0:
            average_into(averaged, params, decay ** 4)
        curve.append((loss.item(), recon.item(), kl.item(), norm.item()))
        if step % 75 == 0:
            print("step %d loss %.2f recon %.2f kl %.2f norm %.1f" % (step, *curve[-1]))
        if step % 150 == 149:
            sheet(smooth, os.path.join(folder, f"samples_{step + 1}.pgm"))
    np.savetxt(os.path.join(folder, "curve.txt"), np.array(curve))


if __name__ == "__main__":
    train()

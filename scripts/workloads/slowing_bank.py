# expect: slowing_steps line guilty
# also: python_overhead
"""MoCo-like contrastive pre-training on digits: query encoder, momentum encoder, bank of negatives."""
import copy
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression


def augment(x):
    shift = torch.randint(-1, 2, (2,)).tolist()
    x = torch.roll(x, shift, dims=(2, 3))
    x = x * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1))
    return x + 0.08 * torch.randn_like(x)


class Encoder(nn.Module):
    def __init__(self, dim=64, ch=24):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, ch, 3, padding=1), nn.BatchNorm2d(ch), nn.ReLU(),
                                  nn.Conv2d(ch, ch * 2, 3, 2, 1), nn.BatchNorm2d(ch * 2), nn.ReLU())
        self.proj = nn.Linear(ch * 2 * 16, dim)

    def forward(self, x):
        return F.normalize(self.proj(self.conv(x).flatten(1)), dim=1)


class MoCo:
    def __init__(self, m=0.99, temperature=0.2, size=4096):
        self.q = Encoder()
        self.k = copy.deepcopy(self.q).requires_grad_(False)
        self.m, self.temperature, self.size = m, temperature, size
        self.bank = F.normalize(torch.randn(size, 64), dim=1)

    @torch.no_grad()
    def momentum_update(self):
        for a, b in zip(self.k.parameters(), self.q.parameters()):
            a.lerp_(b, 1 - self.m)

    def remember(self, keys):
        self.bank = torch.cat([self.bank, keys])  # guilty
        # fixed: self.bank = torch.cat([self.bank, keys])[-self.size:]

    def loss(self, x):
        q = self.q(augment(x))
        with torch.no_grad():
            keys = self.k(augment(x))  # guilty
        positive = (q * keys).sum(1, keepdim=True)
        negative = q @ self.bank.t()  # guilty
        logits = torch.cat([positive, negative], 1) / self.temperature  # guilty
        loss = F.cross_entropy(logits, torch.zeros(len(x), dtype=torch.long))  # guilty
        self.remember(keys)
        return loss


@torch.no_grad()
def probe(encoder, x, y):
    encoder.eval()
    z = encoder(x).numpy()
    encoder.train()
    clf = LogisticRegression(max_iter=200).fit(z[:1200], y[:1200])
    return clf.score(z[1200:], y[1200:])


def main(steps=330, batch=128):
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    moco = MoCo()
    opt = torch.optim.SGD(moco.q.parameters(), lr=0.06, momentum=0.9, weight_decay=1e-4)
    order, t0 = torch.randperm(len(x)), time.time()
    for step in range(steps):
        lo = (step * batch) % (len(x) - batch)
        loss = moco.loss(x[order[lo:lo + batch]])
        opt.zero_grad()
        loss.backward()
        opt.step()
        moco.momentum_update()
        if step % 30 == 0:
            print(f"step {step:4d} loss {loss.item():.3f} {time.time() - t0:6.1f}s")
    print("linear probe", probe(moco.q, x, digits.target))


if __name__ == "__main__":
    main()

# expect: dense_embedding line guilty
# also: slow_optimizer
"""Click-through model on synthetic logs: hashed categorical fields plus a few dense features."""
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR


@dataclass
class Config:
    cardinalities: tuple = (120_000, 40_000, 8_000, 300)
    dim: int = 16
    n_dense: int = 13
    hidden: int = 384
    batch: int = 1024
    steps: int = 120
    lr: float = 1e-3


class WideAndDeep(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding(n, cfg.dim) for n in cfg.cardinalities)
            # fixed: nn.Embedding(n, cfg.dim, sparse=True) for n in cfg.cardinalities)
        for t in self.tables:
            nn.init.normal_(t.weight, std=0.01)
        width = cfg.dim * len(cfg.cardinalities) + cfg.n_dense
        self.deep = nn.Sequential(
            nn.Linear(width, cfg.hidden), nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden), nn.ReLU(),
            nn.Linear(cfg.hidden, 1))
        self.wide = nn.Linear(cfg.n_dense, 1)

    def forward(self, cats, dense):
        embs = [table(cats[:, i]) for i, table in enumerate(self.tables)]
        deep = self.deep(torch.cat(embs + [dense], 1))
        return (deep + self.wide(dense)).squeeze(1)


def make_logs(cfg, n=200_000, seed=0):
    rng = np.random.default_rng(seed)
    cats = np.stack([np.minimum(rng.zipf(1.3, n), c) - 1 for c in cfg.cardinalities], 1)
    dense = rng.standard_normal((n, cfg.n_dense)).astype(np.float32)
    score = dense[:, 0] - 0.5 * dense[:, 3] + np.sin(cats[:, 1] % 7) + 0.3 * rng.standard_normal(n)
    return torch.from_numpy(cats), torch.from_numpy(dense), torch.from_numpy((score > 0.8).astype(np.float32))


def warmup_cosine(total, warm=30):
    def f(step):
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))
    return f


def main():
    torch.manual_seed(0)
    cfg = Config()
    cats, dense, clicks = make_logs(cfg)
    model = WideAndDeep(cfg)
    net_opt = torch.optim.AdamW(list(model.deep.parameters()) + list(model.wide.parameters()), lr=cfg.lr)
    emb_opt = torch.optim.Adam(model.tables.parameters(), lr=cfg.lr * 5)
    # fixed: emb_opt = torch.optim.SparseAdam(model.tables.parameters(), lr=cfg.lr * 5)
    sched = LambdaLR(net_opt, warmup_cosine(cfg.steps))

    tic = time.time()
    for step in range(cfg.steps):
        rows = torch.randint(0, len(clicks), (cfg.batch,))
        logit = model(cats[rows], dense[rows])
        loss = F.binary_cross_entropy_with_logits(logit, clicks[rows])
        net_opt.zero_grad()
        emb_opt.zero_grad()
        loss.backward()
        net_opt.step()
        emb_opt.step()  # guilty
        sched.step()
        if (step + 1) % 50 == 0:
            acc = ((logit > 0) == (clicks[rows] > 0.5)).float().mean()
            print(f"{step + 1:4d} logloss {loss.item():.4f} acc {acc:.3f} "
                  f"{cfg.batch * 50 / (time.time() - tic):.0f} rows/s")
            tic = time.time()


if __name__ == "__main__":
    main()

# expect: healthy
# held out
"""Small causal transformer on arithmetic strings, gradient accumulation, metrics as JSON lines."""
import argparse
import json
import math
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

CHARS = "0123456789+=. "
LENGTH = 33


def corpus(n, seed=0):
    rng = random.Random(seed)
    rows = []
    for _ in range(n):
        text = ""
        while len(text) < LENGTH:
            a, b = rng.randrange(100), rng.randrange(100)
            text += f"{a}+{b}={a + b}. "
        rows.append([CHARS.index(c) for c in text[:LENGTH]])
    return TensorDataset(torch.tensor(rows))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self, d=96, layers=3):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(CHARS), d), nn.Embedding(LENGTH, d)
        self.blocks = nn.Sequential(*[Block(d, 4) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, len(CHARS)))

    def forward(self, ids):
        return self.head(self.blocks(self.tok(ids) + self.pos(torch.arange(ids.shape[1]))))


def lr_at(step, total, peak=2e-3, warm=20):
    return peak * min(1, (step + 1) / warm) * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * step / total)))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=200)
    ap.add_argument("--accum", type=int, default=2)
    ap.add_argument("--batch", type=int, default=24)
    ap.add_argument("--log-every", type=int, default=5)
    args = ap.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(corpus(12000), batch_size=args.batch, shuffle=True, num_workers=0, drop_last=True)
    model = LM()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    path = os.path.join(tempfile.mkdtemp(prefix="lm_"), "metrics.jsonl")
    stream, step, micro = iter(loader), 0, 0
    with open(path, "a") as metrics:
        while step < args.steps:
            total = 0.0
            for _ in range(args.accum):
                (ids,) = next(stream)
                loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
                (loss / args.accum).backward()
                total += loss.item() / args.accum
            for group in opt.param_groups:
                group["lr"] = lr_at(step, args.steps)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            step += 1
            if step % args.log_every == 0:
                row = dict(step=step, loss=total, norm=float(norm), time=time.time())
                metrics.write(json.dumps(row) + "\n")
                metrics.flush()
            if step % 40 == 0:
                print(row)


if __name__ == "__main__":
    main()

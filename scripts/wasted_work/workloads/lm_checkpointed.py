# expect: healthy
# held out
# options: --inspect
"""Character language model with activation checkpointing and gradient accumulation."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class CausalSelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = CausalSelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class CharLM(nn.Module):
    def __init__(self, vocab, ctx, dim, heads, depth, use_ckpt):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(dim)
        self.use_ckpt = use_ckpt
        # sinusoidal table is built once
        pos = torch.arange(ctx)[:, None]
        freq = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
        table = torch.zeros(ctx, dim)
        table[:, 0::2], table[:, 1::2] = torch.sin(pos * freq), torch.cos(pos * freq)
        self.register_buffer("pos_table", table, persistent=False)

    def forward(self, ids, targets):
        x = self.embed(ids) + self.pos_table[: ids.size(1)]
        for block in self.blocks:
            if self.use_ckpt and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        logits = F.linear(self.ln(x), self.embed.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def synth_corpus(n, vocab):
    trans = torch.softmax(3.0 * torch.randn(vocab, vocab), 1).cumsum(1)
    u = torch.rand(n)
    out, state = [], 0
    rows = trans.tolist()
    import bisect
    for r in u.tolist():
        state = min(bisect.bisect(rows[state], r), vocab - 1)
        out.append(state)
    return torch.tensor(out)


def get_batch(corpus, ctx, batch):
    start = torch.randint(len(corpus) - ctx - 1, (batch, 1))
    idx = start + torch.arange(ctx + 1)
    chunk = corpus[idx]
    return chunk[:, :-1], chunk[:, 1:]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--accum", type=int, default=2)
    ap.add_argument("--batch", type=int, default=6)
    ap.add_argument("--ctx", type=int, default=64)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--no-ckpt", action="store_true")
    args = ap.parse_args()
    torch.manual_seed(0)
    vocab = 64
    corpus = synth_corpus(20000, vocab)
    model = CharLM(vocab, args.ctx, args.dim, 4, 2, not args.no_ckpt)
    decay = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=2e-3)
    model.train()
    for step in range(1, args.steps + 1):
        total = 0.0
        for _ in range(args.accum):
            x, y = get_batch(corpus, args.ctx, args.batch)
            loss = model(x, y) / args.accum
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        if step % 20 == 0:
            print(f"step {step} loss {total:.4f}")


if __name__ == "__main__":
    main()

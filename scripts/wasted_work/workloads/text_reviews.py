# expect: padded_batches line guilty
# held out
# options: --inspect
"""Sentiment classification of synthetic reviews with a small transformer encoder."""
import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PAD = 0


class Reviews(Dataset):
    def __init__(self, n, vocab, max_len, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(n):
            # log-normal lengths, as in most review corpora
            length = int(torch.empty(1).log_normal_(2.9, 0.45, generator=g).clamp(5, max_len))
            label = int(torch.randint(2, (1,), generator=g))
            tokens = torch.randint(1, vocab, (length,), generator=g)
            cue = torch.rand(length, generator=g) < 0.2
            tokens[cue] = 1 + label * 10 + torch.randint(10, (int(cue.sum()),), generator=g)
            self.rows.append((tokens, label))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


@dataclass
class PadCollator:
    max_len: int

    def __call__(self, rows):
        width = self.max_len  # guilty
        # fixed: width = max(len(tokens) for tokens, _ in rows)
        ids = torch.full((len(rows), width), PAD)
        for i, (tokens, _) in enumerate(rows):
            ids[i, : len(tokens)] = tokens
        return {"input_ids": ids, "mask": ids != PAD, "labels": torch.tensor([y for _, y in rows])}


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.heads = heads

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class Classifier(nn.Module):
    def __init__(self, vocab, max_len, dim=48, heads=4, depth=2):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.out = nn.Linear(dim, 2)

    def forward(self, input_ids, mask):
        x = self.tok(input_ids) + self.pos[: input_ids.size(1)]
        key_mask = mask[:, None, None, :]
        for block in self.blocks:
            x = block(x, key_mask)  # guilty
        w = mask.unsqueeze(-1).float()
        return self.out((x * w).sum(1) / w.sum(1))


class Trainer:
    def __init__(self, model, loader, lr):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.step = 0

    def training_step(self, batch):
        logits = self.model(batch["input_ids"], batch["mask"])
        loss = F.cross_entropy(logits, batch["labels"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, epochs):
        for epoch in range(epochs):
            for batch in self.loader:
                loss = self.training_step(batch)
                self.step += 1
                if self.step % 20 == 0:
                    print(f"epoch {epoch} step {self.step}: loss={loss.item():.4f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=800)
    ap.add_argument("--max_len", type=int, default=80)
    ap.add_argument("--reviews", type=int, default=400)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    torch.manual_seed(0)
    data = Reviews(args.reviews, args.vocab, args.max_len, 7)
    loader = DataLoader(data, args.batch, shuffle=True, collate_fn=PadCollator(args.max_len))
    Trainer(Classifier(args.vocab, args.max_len), loader, args.lr).fit(args.epochs)

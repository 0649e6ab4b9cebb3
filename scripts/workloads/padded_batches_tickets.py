# expect: padded_batches line guilty
# twin: healthy
"""Route support tickets to one of 12 queues with a small transformer encoder."""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    vocab: int = 6000
    queues: int = 12
    max_len: int = 192
    dim: int = 80
    heads: int = 4
    layers: int = 2
    batch: int = 8
    epochs: int = 2
    lr: float = 5e-4
    tickets: int = 1280
    seed: int = 3


class Tickets(Dataset):
    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        lengths = np.clip(rng.lognormal(4.15, 0.4, cfg.tickets), 8, cfg.max_len).astype(int)
        self.queue = rng.integers(0, cfg.queues, cfg.tickets)
        self.tokens = []
        for n, q in zip(lengths, self.queue):
            toks = rng.integers(200, cfg.vocab, n)
            hint = rng.random(n) < 0.12
            toks[hint] = 10 + q * 12 + rng.integers(0, 12, hint.sum())
            self.tokens.append(torch.from_numpy(toks))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], int(self.queue[i])


class Collator:
    def __init__(self, cfg):
        self.max_len = cfg.max_len

    def __call__(self, items):  # guilty
        width = self.max_len  # guilty
        # fixed: width = max(len(toks) for toks, _ in items)
        ids = torch.zeros(len(items), width, dtype=torch.long)
        for row, (toks, _) in enumerate(items):
            ids[row, : len(toks)] = toks
        return {"ids": ids, "mask": ids == 0, "labels": torch.tensor([q for _, q in items])}


class Router(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.dim, padding_idx=0)
        self.pos = nn.Parameter(torch.randn(cfg.max_len, cfg.dim) * 0.02)
        layer = nn.TransformerEncoderLayer(cfg.dim, cfg.heads, 4 * cfg.dim, 0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.out = nn.Linear(cfg.dim, cfg.queues)

    def forward(self, ids, mask):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        x = self.encoder(x, src_key_padding_mask=mask)
        keep = (~mask).unsqueeze(-1).float()
        return self.out((x * keep).sum(1) / keep.sum(1))


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.loader = DataLoader(Tickets(cfg), cfg.batch, shuffle=True, drop_last=True, collate_fn=Collator(cfg))
        self.model = Router(cfg)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.01)
        total = cfg.epochs * len(self.loader)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, cfg.lr, total_steps=total)
        self.step = 0

    def train_step(self, batch):
        logits = self.model(batch["ids"], batch["mask"])
        loss = F.cross_entropy(logits, batch["labels"])
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        self.step += 1
        return loss.detach(), (logits.detach().argmax(-1) == batch["labels"]).float().mean()

    def fit(self):
        for epoch in range(self.cfg.epochs):
            for batch in self.loader:
                loss, acc = self.train_step(batch)
                if self.step % 50 == 0:
                    print(f"{epoch} {self.step:5d} loss {loss.item():.3f} acc {acc.item():.3f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    Trainer(Config()).fit()

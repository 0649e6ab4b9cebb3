# expect: unused_work line guilty
# held out
# options: --inspect
"""Sequential recommendation with self-attention (SASRec-like), next-item objective."""
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class ClickSessions(Dataset):
    """Synthetic sessions: users walk along a noisy item chain."""

    def __init__(self, n_users, n_items, max_len, seed=0):
        g = torch.Generator().manual_seed(seed)
        stride = torch.randint(1, 6, (n_users, 1), generator=g)
        start = torch.randint(0, n_items, (n_users, 1), generator=g)
        noise = torch.randint(0, 3, (n_users, max_len + 1), generator=g)
        seq = (start + stride * torch.arange(max_len + 1) + noise) % n_items
        self.seq = seq + 1  # 0 is padding

    def __len__(self):
        return len(self.seq)

    def __getitem__(self, i):
        return self.seq[i, :-1], self.seq[i, -1]


class SASRec(nn.Module):
    def __init__(self, n_items, max_len, dim=48, heads=2, blocks=2):
        super().__init__()
        self.item_emb = nn.Embedding(n_items + 1, dim, padding_idx=0)
        self.pos_emb = nn.Embedding(max_len, dim)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, dim * 2, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(blocks)
        )
        self.norm = nn.LayerNorm(dim)
        self.register_buffer("pos", torch.arange(max_len), persistent=False)
        mask = torch.triu(torch.ones(max_len, max_len, dtype=torch.bool), 1)
        self.register_buffer("causal", mask, persistent=False)
        nn.init.normal_(self.item_emb.weight, std=0.05)

    def encode(self, seq):
        h = self.item_emb(seq) + self.pos_emb(self.pos)
        for block in self.blocks:
            h = block(h, src_mask=self.causal)
        return self.norm(h)

    def forward(self, seq):
        h = self.encode(seq)
        scores = h @ self.item_emb.weight.t()  # guilty
        # fixed: scores = h[:, -1:] @ self.item_emb.weight.t()
        return scores


def train(args):
    torch.manual_seed(args.seed)
    data = ClickSessions(args.users, args.items, args.max_len, args.seed)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = SASRec(args.items, args.max_len)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    step = 0
    while step < args.steps:
        for seq, target in loader:
            scores = model(seq)
            loss = criterion(scores[:, -1], target)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step == args.steps:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--max_len", type=int, default=30)
    parser.add_argument("--batch_size", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    train(parser.parse_args())

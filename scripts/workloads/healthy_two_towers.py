# expect: healthy
# held out
"""Two-tower recommender: sparse tables with their own optimizer, dense towers with another."""
import gc
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Tower(nn.Module):
    def __init__(self, rows, extra, dim=32, width=384, out=64):
        super().__init__()
        self.table = nn.Embedding(rows, dim, sparse=True)
        nn.init.normal_(self.table.weight, std=0.05)
        self.net = nn.Sequential(nn.Linear(dim + extra, width), nn.ReLU(), nn.Linear(width, width),
                                 nn.ReLU(), nn.Linear(width, out))

    def forward(self, ids, features):
        return F.normalize(self.net(torch.cat([self.table(ids), features], 1)), dim=1)


class Interactions:
    def __init__(self, users=60_000, items=20_000, n=150_000, seed=0):
        rng = np.random.default_rng(seed)
        self.user = torch.from_numpy(rng.integers(0, users, n))
        taste = self.user.numpy() % 40
        self.item = torch.from_numpy((rng.integers(0, items // 40, n) * 40 + taste) % items)
        self.user_x = torch.from_numpy(rng.standard_normal((users, 8)).astype(np.float32))
        self.item_x = torch.from_numpy(rng.standard_normal((items, 8)).astype(np.float32))
        self.users, self.items, self.n_train = users, items, n - 2000

    def batch(self, index):
        u, i = self.user[index], self.item[index]
        return u, self.user_x[u], i, self.item_x[i]


class System:
    def __init__(self, data):
        self.data = data
        self.user, self.item = Tower(data.users, 8), Tower(data.items, 8)
        self.log_scale = nn.Parameter(torch.tensor(2.0))
        dense = [*self.user.net.parameters(), *self.item.net.parameters(), self.log_scale]
        self.opt_dense = torch.optim.AdamW(dense, lr=1e-3, fused=True)
        self.opt_sparse = torch.optim.SparseAdam([self.user.table.weight, self.item.table.weight], lr=2e-2)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt_dense, 100, 0.7)

    def scores(self, index):
        u, ux, i, ix = self.data.batch(index)
        return self.user(u, ux) @ self.item(i, ix).t() * self.log_scale.exp()

    def step(self, index):
        loss = F.cross_entropy(self.scores(index), torch.arange(len(index)))
        self.opt_dense.zero_grad(set_to_none=False)
        self.opt_sparse.zero_grad()
        loss.backward()
        self.opt_dense.step()
        self.opt_sparse.step()
        self.sched.step()
        return loss.item()

    @torch.no_grad()
    def recall(self, k=10):
        held = torch.arange(self.data.n_train, self.data.n_train + 500)
        top = self.scores(held).topk(k, dim=1).indices
        return (top == torch.arange(500)[:, None]).any(1).float().mean().item()

    def save(self, path):
        torch.save({"user": self.user.state_dict(), "item": self.item.state_dict()}, path)


def main(steps=400, batch=512):
    torch.manual_seed(0)
    system = System(Interactions())
    path = os.path.join(tempfile.mkdtemp(prefix="towers_"), "model.pt")
    losses = []
    for step in range(1, steps + 1):
        losses.append(system.step(torch.randint(0, system.data.n_train, (batch,))))
        if step % 50 == 0:
            print(f"step {step} loss {np.mean(losses[-50:]):.4f} recall@10 {system.recall():.3f}")
        if step % 200 == 0:
            system.save(path)
            gc.collect()
    print("saved", path)


if __name__ == "__main__":
    main()

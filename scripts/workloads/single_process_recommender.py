# expect: data_loader_single_process line guilty
# also: data_loader_wait slow_item slow_collate slow_steps items_never_change
# held out
"""Rates films for users: a two-tower recommender that draws its negatives while it loads."""
import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

FILMS, USERS, HISTORY = 4000, 3000, 20


class Ratings(Dataset):
    def __init__(self, count, negatives):
        rng = np.random.default_rng(7)
        self.user = rng.integers(0, USERS, count)
        self.film = rng.integers(0, FILMS, count)
        self.history = rng.integers(0, FILMS, (USERS, HISTORY))
        self.popularity = np.cumsum(rng.random(FILMS))
        self.popularity /= self.popularity[-1]
        self.negatives = negatives

    def __len__(self):
        return len(self.user)

    def __getitem__(self, index):
        user = self.user[index]
        draw = np.random.default_rng(index)
        seen = self.history[user]
        others = np.searchsorted(self.popularity, draw.random(3 * self.negatives))
        others = others[~np.isin(others, seen)][: self.negatives]
        return {
            "user": int(user),
            "history": torch.from_numpy(seen),
            "films": torch.from_numpy(np.append(others, self.film[index])),
        }


class Towers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.users = nn.Embedding(USERS, width)
        self.films = nn.EmbeddingBag(FILMS, width, mode="mean")
        self.query = nn.Sequential(nn.Linear(2 * width, 512), nn.ReLU(), nn.Linear(512, width))
        self.offer = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, width))

    def forward(self, batch):
        person = torch.cat([self.users(batch["user"]), self.films(batch["history"])], dim=1)
        films = self.offer(F.embedding(batch["films"], self.films.weight))
        return torch.einsum("bw,bnw->bn", self.query(person), films)


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--negatives", type=int, default=15)
    parser.add_argument("--ratings", type=int, default=64 * 100)
    return parser.parse_args()


def main():
    args = get_args()
    torch.manual_seed(0)
    data = Ratings(args.ratings, args.negatives)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)  # guilty
    # fixed: loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=2, persistent_workers=True)
    model = Towers(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, fused=True)
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for batch in loader:
            scores = model(batch)
            target = torch.full((len(scores),), args.negatives)
            loss = F.cross_entropy(scores, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch} loss {total.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

# expect: materialised_broadcast line guilty
# held out
# options: --inspect
"""Prototypical networks for few-shot classification on synthetic embeddings."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def euclidean_dist(x, y):
    """x: (N, D), y: (M, D) -> squared distances (N, M)"""
    n, m, d = x.size(0), y.size(0), x.size(1)
    x_all = x.unsqueeze(1).expand(n, m, d)
    # fixed:
    y_all = y.unsqueeze(0).expand(n, m, d)
    # fixed:
    return torch.pow(x_all - y_all, 2).sum(2)  # guilty
    # fixed: return torch.addmm(x.square().sum(1, keepdim=True) + y.square().sum(1), x, y.t(), alpha=-2)


class EpisodeSampler:
    def __init__(self, n_classes, dim, way, shot, query):
        self.means = torch.randn(n_classes, dim)
        self.way, self.shot, self.query = way, shot, query

    def __iter__(self):
        while True:
            cls = torch.randperm(len(self.means))[: self.way]
            mu = self.means[cls].unsqueeze(1)
            x = mu + 1.5 * torch.randn(self.way, self.shot + self.query, mu.size(-1))
            yield x[:, : self.shot], x[:, self.shot :]


class Embedder(nn.Module):
    def __init__(self, dim, hidden, out):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.bn1 = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, out)

    def forward(self, x):
        return self.fc2(F.relu(self.bn1(self.fc1(x))))


class ProtoNet(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.log_temp = nn.Parameter(torch.tensor(-4.0))

    def loss(self, support, query):
        way, shot, dim = support.shape
        n_query = query.size(1)
        z = self.encoder(torch.cat([support.reshape(-1, dim), query.reshape(-1, dim)]))
        proto = z[: way * shot].view(way, shot, -1).mean(1)
        zq = z[way * shot :]
        dists = euclidean_dist(zq, proto)  # guilty
        target = torch.arange(way).repeat_interleave(n_query)
        logits = -dists * self.log_temp.exp()
        loss = F.cross_entropy(logits, target)
        acc = (logits.argmax(1) == target).float().mean()
        return loss, acc


def main():
    parser = argparse.ArgumentParser(description="Train prototypical networks")
    parser.add_argument("--data.way", dest="way", type=int, default=24)
    parser.add_argument("--data.shot", dest="shot", type=int, default=5)
    parser.add_argument("--data.query", dest="query", type=int, default=15)
    parser.add_argument("--model.hid_dim", dest="hidden", type=int, default=512)
    parser.add_argument("--model.z_dim", dest="z_dim", type=int, default=64)
    parser.add_argument("--train.episodes", dest="episodes", type=int, default=100)
    parser.add_argument("--train.lr", dest="lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(1234)

    sampler = iter(EpisodeSampler(64, 100, args.way, args.shot, args.query))
    model = ProtoNet(Embedder(100, args.hidden, args.z_dim))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    model.train()
    for ep in range(1, args.episodes + 1):
        support, query = next(sampler)
        optimizer.zero_grad()
        loss, acc = model.loss(support, query)
        loss.backward()
        optimizer.step()
        if ep % 20 == 0:
            print(f"episode {ep}: loss {loss.item():.4f} acc {acc.item():.3f}")


if __name__ == "__main__":
    main()

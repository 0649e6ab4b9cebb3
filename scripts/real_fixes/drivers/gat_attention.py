"""Train pyGAT's dense graph attention network as its train.py does, on a random graph."""

from __future__ import annotations

import time

import torch
from models import GAT
from torch.nn import functional

NODES, FEATURES, CLASSES, NEIGHBOURS, TRAINED, STEPS, EPOCHS = 400, 200, 7, 4, 100, 7, 8


def main() -> None:
    """Train, and print the loss and the time of each epoch of steps."""
    torch.manual_seed(0)
    labels = torch.randint(0, CLASSES, (NODES,))
    features = torch.rand(NODES, FEATURES) + torch.randn(CLASSES, FEATURES)[labels]
    adjacency = (torch.rand(NODES, NODES) < NEIGHBOURS / NODES).float()
    adjacency = ((adjacency + adjacency.T + torch.eye(NODES)) > 0).float()
    adjacency /= adjacency.sum(1, keepdim=True)
    train, valid = torch.arange(TRAINED), torch.arange(TRAINED, 3 * TRAINED)
    model = GAT(nfeat=FEATURES, nhid=8, nclass=CLASSES, dropout=0.6, alpha=0.2, nheads=8)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(STEPS):
            model.train()
            optimizer.zero_grad()
            loss = functional.nll_loss(model(features, adjacency)[train], labels[train])
            loss.backward()
            optimizer.step()
            model.eval()
            total += functional.nll_loss(model(features, adjacency)[valid], labels[valid]).item()
        print(f"epoch {epoch} loss {total / STEPS:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

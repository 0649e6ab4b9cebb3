"""Train a graph network whose neighbours are combined by PyTorch Geometric's LCM aggregation."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch_geometric.nn import SAGEConv
from torch_geometric.nn.aggr import LCMAggregation

NODES, NEIGHBOURS, FEATURES, HIDDEN, STEPS, EPOCHS = 100, 23, 32, 32, 20, 7


class Network(nn.Module):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = SAGEConv(FEATURES, HIDDEN, aggr=LCMAggregation(FEATURES, FEATURES))
        self.second = SAGEConv(HIDDEN, 8, aggr=LCMAggregation(HIDDEN, HIDDEN))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return the logits of each node."""
        return self.second(self.first(x, edges).relu(), edges)


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    x, labels = torch.randn(NODES, FEATURES), torch.randint(0, 8, (NODES,))
    targets = torch.arange(NODES).repeat_interleave(NEIGHBOURS)
    edges = torch.stack([torch.randint(0, NODES, (len(targets),)), targets])
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x, edges), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / STEPS:.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

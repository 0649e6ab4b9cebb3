"""Train a graph network on small graphs, with the loaders of PyG's GraphGym and two worker processes."""

from __future__ import annotations

import time

import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.graphgym.config import cfg, set_cfg
from torch_geometric.graphgym.loader import get_loader
from torch_geometric.nn import GCNConv, global_mean_pool

GRAPHS, NODES, EDGES, FEATURES, BATCH, EPOCHS = 600, 24, 80, 16, 32, 9


class Network(nn.Module):
    """Two graph convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = GCNConv(FEATURES, 64)
        self.second = GCNConv(64, 64)
        self.head = nn.Linear(64, 2)

    def forward(self, data: Data) -> torch.Tensor:
        """Return the scores of each graph."""
        hidden = self.first(data.x, data.edge_index).relu()
        hidden = self.second(hidden, data.edge_index).relu()
        return self.head(global_mean_pool(hidden, data.batch))


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    set_cfg(cfg)
    cfg.num_workers = 2
    graphs = [
        Data(
            x=torch.randn(NODES, FEATURES),
            edge_index=torch.randint(0, NODES, (2, EDGES)),
            y=torch.randint(0, 2, (1,)),
        )
        for _ in range(GRAPHS)
    ]
    loader = get_loader(graphs, "full_batch", BATCH, shuffle=True)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        torch.manual_seed(epoch)
        for data in loader:
            loss = nn.functional.cross_entropy(model(data), data.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(loader):.4f} seconds {time.perf_counter() - started:.3f}")


if __name__ == "__main__":
    main()

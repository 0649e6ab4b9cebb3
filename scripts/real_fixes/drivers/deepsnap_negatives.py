"""Train a link predictor on a random graph of Cora's size, with DeepSNAP's data set and new negatives in each epoch."""

from __future__ import annotations

import sys
import time
import types

import networkx
import torch
from torch import nn
from torch.utils.data import DataLoader

geometric = types.ModuleType("torch_geometric")
geometric.utils = types.ModuleType("torch_geometric.utils")  # type: ignore[attr-defined]
geometric.utils.to_undirected = None  # of a function that this training does not call
sys.modules["torch_geometric"], sys.modules["torch_geometric.utils"] = geometric, geometric.utils
sys.modules["deepsnap.hetero_gnn"] = types.ModuleType("deepsnap.hetero_gnn")

from deepsnap.batch import Batch  # noqa: E402
from deepsnap.dataset import GraphDataset  # noqa: E402
from deepsnap.graph import Graph  # noqa: E402

NODES, EDGES, FEATURES, HIDDEN, STEPS, EPOCHS = 2708, 5278, 64, 32, 20, 7


class Network(nn.Module):
    """Two graph convolutions, and the product of the two nodes of each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def gather(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return the sum of each node and its neighbours, over the root of their number."""
        degree = torch.ones(len(nodes)).index_add(0, edges[1], torch.ones(edges.shape[1]))
        return nodes.index_add(0, edges[1], nodes[edges[0]]) / degree.sqrt().unsqueeze(1)

    def forward(self, graph: Batch) -> torch.Tensor:
        """Return the score of each edge to predict."""
        nodes = torch.relu(self.gather(self.first(graph.node_feature), graph.edge_index))
        nodes = self.gather(self.second(nodes), graph.edge_index)
        return (nodes[graph.edge_label_index[0]] * nodes[graph.edge_label_index[1]]).sum(1)


def main() -> None:
    """Train, and print the loss and the time of each epoch."""
    torch.manual_seed(0)
    network = networkx.gnm_random_graph(NODES, EDGES, seed=0)
    for node in network.nodes:
        network.nodes[node]["node_feature"] = torch.rand(FEATURES)
    dataset = GraphDataset([Graph(network)], task="link_pred", edge_train_mode="all")
    train, _, _ = dataset.split(transductive=True, split_ratio=[0.85, 0.05, 0.1])
    loader = DataLoader(train, collate_fn=Batch.collate([]), batch_size=1)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(EPOCHS):
        started, total = time.perf_counter(), 0.0
        for _ in range(STEPS):
            for batch in loader:
                optimizer.zero_grad()
                predicted = model(batch)
                loss = nn.functional.binary_cross_entropy_with_logits(predicted, batch.edge_label.float())
                loss.backward()
                optimizer.step()
                total += loss.item()
        seconds = time.perf_counter() - started
        print(f"epoch {epoch} loss {total / STEPS:.4f} seconds {seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()

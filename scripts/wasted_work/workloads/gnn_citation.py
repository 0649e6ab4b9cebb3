# expect: unchanging_work line guilty
# held out
# options: --inspect
"""Semi-supervised node classification on a synthetic citation graph (Cora style)."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--nodes", type=int, default=1500)
    p.add_argument("--degree", type=int, default=16)
    p.add_argument("--feats", type=int, default=96)
    p.add_argument("--hidden", type=int, default=32)
    p.add_argument("--classes", type=int, default=7)
    p.add_argument("--epochs", type=int, default=100)
    p.add_argument("--dropout", type=float, default=0.5)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def make_graph(args):
    y = torch.randint(args.classes, (args.nodes,))
    centers = torch.randn(args.classes, args.feats)
    x = centers[y] * 0.4 + torch.randn(args.nodes, args.feats)
    n_edges = args.nodes * args.degree
    src = torch.randint(args.nodes, (n_edges,))
    # homophily: most edges are rewired to a node of the same class
    order = torch.argsort(y)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(args.nodes)
    near = (rank[src] + torch.randint(1, 40, (n_edges,))) % args.nodes
    dst = torch.where(torch.rand(n_edges) < 0.8, order[near], torch.randint(args.nodes, (n_edges,)))
    edge_index = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])])
    train_mask = torch.rand(args.nodes) < 0.3
    return x, y, edge_index, train_mask


def gcn_norm(edge_index, num_nodes):
    loops = torch.arange(num_nodes)
    row = torch.cat([edge_index[0], loops])
    col = torch.cat([edge_index[1], loops])
    deg = torch.zeros(num_nodes).scatter_add_(0, col, torch.ones(col.numel()))
    inv_sqrt = deg.pow(-0.5)
    inv_sqrt[torch.isinf(inv_sqrt)] = 0.0
    weight = inv_sqrt[row] * inv_sqrt[col]
    return torch.sparse_coo_tensor(torch.stack([col, row]), weight, (num_nodes, num_nodes), check_invariants=False).coalesce()  # guilty


class GCNConv(nn.Module):
    def __init__(self, in_dim, out_dim):
        super().__init__()
        self.lin = nn.Linear(in_dim, out_dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.adj = None

    def forward(self, x, edge_index):
        self.adj = gcn_norm(edge_index, x.size(0))  # guilty
        # fixed: self.adj = gcn_norm(edge_index, x.size(0)) if self.adj is None else self.adj
        x = self.lin(x)
        return torch.sparse.mm(self.adj, x) + self.bias


class GCN(nn.Module):
    def __init__(self, in_dim, hidden, classes, dropout):
        super().__init__()
        self.conv1 = GCNConv(in_dim, hidden)
        self.conv2 = GCNConv(hidden, classes)
        self.dropout = dropout

    def forward(self, x, edge_index):
        x = F.relu(self.conv1(x, edge_index))
        x = F.dropout(x, self.dropout, self.training)
        return self.conv2(x, edge_index)


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    x, y, edge_index, train_mask = make_graph(args)
    model = GCN(args.feats, args.hidden, args.classes, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)

    model.train()
    for epoch in range(1, args.epochs + 1):
        optimizer.zero_grad()
        logits = model(x, edge_index)
        loss = F.cross_entropy(logits[train_mask], y[train_mask])
        loss.backward()
        optimizer.step()
        if epoch % 20 == 0:
            acc = (logits.argmax(1) == y)[train_mask].float().mean()
            print(f"epoch {epoch:3d} loss {loss.item():.4f} train acc {acc:.3f}")


if __name__ == "__main__":
    main()

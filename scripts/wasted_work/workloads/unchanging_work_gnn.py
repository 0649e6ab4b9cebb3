# expect: unchanging_work line guilty
# options: --inspect
"""Semi-supervised classification of the papers of a citation graph with a graph convolution network."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


def community_graph(papers, classes, links, width, generator):
    """A directed citation graph; most citations stay within the field of the paper."""
    field = torch.randint(classes, (papers,), generator=generator)
    members = [torch.nonzero(field == c).flatten() for c in range(classes)]
    source = torch.randint(papers, (links,), generator=generator)
    target = torch.randint(papers, (links,), generator=generator)
    inside = torch.rand(links, generator=generator) < 0.7
    for c, group in enumerate(members):
        mine = inside & (field[source] == c)
        target[mine] = group[torch.randint(len(group), (int(mine.sum()),), generator=generator)]
    topics = torch.randn(classes, width, generator=generator)
    words = F.relu(topics[field] * 0.3 + torch.randn(papers, width, generator=generator))
    return words, torch.stack([source, target]), field


def symmetric(edges, nodes):
    """Both directions and self loops, each edge once."""
    loops = torch.arange(nodes).expand(2, -1)
    both = torch.cat([edges, edges.flip(0), loops], 1)
    keys = torch.unique(both[0] * nodes + both[1])  # guilty
    return torch.stack([keys // nodes, keys % nodes])  # guilty


def gcn_weights(edges, nodes):
    degree = torch.bincount(edges[1], minlength=nodes).float()  # guilty
    scale = degree.rsqrt()
    return scale[edges[0]] * scale[edges[1]]  # guilty


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x, edges):
        edges = symmetric(edges, len(x))
        # fixed: graph = edges
        weights = gcn_weights(edges, len(x))
        # fixed: edges, weights = graph
        x = self.linear(x)
        messages = x[edges[0]] * weights[:, None]
        return torch.zeros_like(x).index_add(0, edges[1], messages) + self.bias


class GCN(nn.Module):
    def __init__(self, inputs, hidden, classes, dropout=0.5):
        super().__init__()
        self.first = GraphConv(inputs, hidden)
        self.second = GraphConv(hidden, hidden)
        self.last = GraphConv(hidden, classes)
        self.dropout = dropout

    def forward(self, x, edges):
        x = F.dropout(x, self.dropout, self.training)
        x = F.relu(self.first(x, edges))
        x = F.dropout(x, self.dropout, self.training)
        x = F.relu(self.second(x, edges))
        return self.last(x, edges)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--hidden", type=int, default=24)
    options = parser.parse_args()
    torch.manual_seed(12)
    words, edges, field = community_graph(2500, 7, 14000, 300, torch.Generator().manual_seed(5))
    known = torch.rand(len(field)) < 0.15
    model = GCN(words.shape[1], options.hidden, 7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    # fixed: optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4); edges = symmetric(edges, len(words)); edges = edges, gcn_weights(edges, len(words))
    for epoch in range(options.epochs):
        model.train()
        optimizer.zero_grad()
        logits = model(words, edges)
        loss = F.cross_entropy(logits[known], field[known])
        loss.backward()
        optimizer.step()
        if epoch % 15 == 14:
            model.eval()
            with torch.no_grad():
                right = (model(words, edges).argmax(1) == field)[~known].float().mean()
            print(f"epoch {epoch + 1}: loss {loss.item():.5f}, other papers {right.item():.4f} right")


if __name__ == "__main__":
    main()

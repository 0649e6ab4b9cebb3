# expect: repeated_work line guilty
# options: --inspect
"""Embeddings of product pictures (as descriptors) for retrieval: hardest triplets plus a soft neighbour term."""
import torch
from torch import nn
from torch.nn import functional as F


class Embedder(nn.Module):
    def __init__(self, inputs=96, hidden=256, outputs=48):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=1)


def distances(vectors):
    """Euclidean distances of all pairs, with a gradient that is finite for equal vectors."""
    products = vectors @ vectors.t()  # guilty
    squares = products.diagonal()
    squared = squares[:, None] - 2 * products + squares[None, :]  # guilty
    return squared.clamp(min=1e-8).sqrt()  # guilty


class HardestTriplets(nn.Module):
    def __init__(self, margin=0.2):
        super().__init__()
        self.margin = margin

    def forward(self, vectors, labels):
        apart = distances(vectors)  # guilty
        # fixed: apart = vectors
        same = labels[:, None] == labels[None, :]
        far = apart.masked_fill(~same, 0).amax(1)
        near = apart.masked_fill(same, 9).amin(1)
        return F.softplus((far - near + self.margin) * 8).mean() / 8


class SoftNeighbours(nn.Module):
    """Neighbourhood components: the chance that a random close neighbour has the same label."""

    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, vectors, labels):
        logits = -distances(vectors) / self.temperature  # guilty
        # fixed: logits = -vectors / self.temperature
        logits = logits - torch.diag(torch.full((len(labels),), 1e4))
        same = labels[:, None] == labels[None, :]
        inside = logits.masked_fill(~same, -1e4).logsumexp(1)
        return (logits.logsumexp(1) - inside).mean()


def sample(centres, classes, each):
    chosen = torch.randperm(len(centres))[:classes].repeat_interleave(each)
    return centres[chosen] + 0.8 * torch.randn(len(chosen), centres.shape[1]), chosen


torch.manual_seed(6)
centres = torch.randn(300, 96)
net = Embedder()
terms = [(1.0, HardestTriplets()), (0.5, SoftNeighbours())]
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

for iteration in range(100):
    inputs, labels = sample(centres, 64, 6)
    vectors = net(inputs)
    # fixed: vectors = distances(net(inputs))
    loss = sum(weight * term(vectors, labels) for weight, term in terms)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if iteration % 10 == 9:
        print(f"[{iteration + 1:3d}] loss {loss.item():.6f}")

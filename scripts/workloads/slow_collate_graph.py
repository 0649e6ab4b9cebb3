# expect: slow_collate line guilty
# held out
# also: data_loader_wait slow_steps too_few_workers
"""A collator object joins small graphs into one batch, edge by edge."""
import random

import torch
from torch.utils.data import DataLoader, Dataset

NODES = 20


class Graphs(Dataset):
    def __init__(self, size):
        rng = random.Random(5)
        self.edges = [[(rng.randrange(NODES), rng.randrange(NODES)) for _ in range(400)] for _ in range(size)]

    def __len__(self):
        return len(self.edges)

    def __getitem__(self, index):
        return self.edges[index], float(index % 3)


class GraphCollator:
    def __init__(self, nodes):
        self.nodes = nodes

    def __call__(self, samples):  # guilty
        adjacency = torch.zeros(len(samples), self.nodes * self.nodes)
        for number, (edges, _) in enumerate(samples):
            for source, target in edges:
                adjacency[number, source * self.nodes + target] += 1.0
        return adjacency, torch.tensor([target for _, target in samples])


class GraphNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(NODES * NODES, 512)
        self.last = torch.nn.Linear(512, 1)

    def forward(self, adjacency):
        return self.last(torch.relu(self.first(adjacency)))[:, 0]


def train(epochs=2):
    torch.manual_seed(0)
    net = GraphNet()
    optimizer = torch.optim.AdamW(net.parameters())
    loader = DataLoader(
        Graphs(1600), batch_size=16, num_workers=2, persistent_workers=True, collate_fn=GraphCollator(NODES)
    )
    for _ in range(epochs):
        for adjacency, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(net(adjacency), targets)
            loss.backward()
            optimizer.step()
    return loss.item()


if __name__ == "__main__":
    print(train())

# expect: data_loader_single_process line guilty
# also: slow_collate gc_pause
# held out
"""Graph network written by hand: regress a property of random molecule-like graphs."""
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 12


class MoleculeSet(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        self.graphs = []
        for _ in range(count):
            n = int(rng.integers(18, 41))
            x = rng.standard_normal((n, FEATURES)).astype(np.float32)
            a = (rng.random((n, n)) < 3.0 / n).astype(np.float32)
            a = np.maximum(a, a.T)
            y = float(x[:, 0].mean() + 0.1 * a.sum() / n + (x[:, 1] * a.sum(1)).mean() * 0.2)
            self.graphs.append((x, a, y))

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]


def pad_graphs(samples):
    """Pads all graphs of a batch to the largest one."""
    largest = max(len(x) for x, _, _ in samples)
    nodes, adjacency, mask, targets = [], [], [], []
    for x, a, y in samples:
        missing = largest - len(x)
        rows = x.tolist() + [[0.0] * FEATURES for _ in range(missing)]
        adj = [row + [0.0] * missing for row in a.tolist()]
        adj += [[0.0] * largest for _ in range(missing)]
        nodes.append(rows)
        adjacency.append(adj)
        mask.append([1.0] * len(x) + [0.0] * missing)
        targets.append(y)
    return (torch.tensor(nodes),
            torch.tensor(adjacency),  # guilty
            torch.tensor(mask), torch.tensor(targets))


class MessagePassing(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.msg = nn.Linear(width, width)
        self.upd = nn.GRUCell(width, width)

    def forward(self, h, adj):
        b, n, w = h.shape
        m = torch.bmm(adj, torch.relu(self.msg(h)))
        return self.upd(m.view(b * n, w), h.view(b * n, w)).view(b, n, w)


class GraphNet(nn.Module):
    def __init__(self, width=40, layers=2):
        super().__init__()
        self.enc = nn.Linear(FEATURES, width)
        self.layers = nn.ModuleList(MessagePassing(width) for _ in range(layers))
        self.read = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x, adj, mask):
        h = self.enc(x)
        deg = adj.sum(-1, keepdim=True).clamp(min=1)
        for layer in self.layers:
            h = layer(h, adj / deg)
        pooled = (h * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
        return self.read(pooled).squeeze(-1)


def run_epoch(model, loader, opt):
    total, count = 0.0, 0
    for x, adj, mask, y in loader:  # guilty
        loss = nn.functional.smooth_l1_loss(model(x, adj, mask), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        total += loss.item() * len(y)
        count += len(y)
    return total / count


if __name__ == "__main__":
    torch.manual_seed(3)
    train = DataLoader(MoleculeSet(2000, 0), batch_size=64, shuffle=True, drop_last=True,  # guilty
                       collate_fn=pad_graphs)  # guilty
    net = GraphNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    t0 = time.time()
    for epoch in range(8):
        print(f"epoch {epoch} loss {run_epoch(net, train, optimizer):.4f} ({time.time() - t0:.1f}s)")

# expect: healthy
# options: --inspect
"""A factorisation machine for recommendations; the gradients of four small batches are added up for each update."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SIZES = [300, 250, 40, 12, 90]
PARTS = 4


class DeepFM(nn.Module):
    def __init__(self, dim=16, hidden=160):
        super().__init__()
        self.factors = nn.ModuleList(nn.Embedding(n, dim) for n in SIZES)
        self.first = nn.ModuleList(nn.Embedding(n, 1) for n in SIZES)
        self.deep = nn.Sequential(nn.Linear(dim * len(SIZES), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, ids):
        columns = ids.unbind(1)
        vectors = torch.stack([table(c) for table, c in zip(self.factors, columns)], 1)
        linear = sum(table(c) for table, c in zip(self.first, columns))
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1, keepdim=True)
        return (linear + pairs + self.deep(vectors.flatten(1))).squeeze(1)


def log(count):
    ids = torch.stack([torch.randint(n, (count,)) for n in SIZES], 1)
    taste = [torch.randn(n) for n in SIZES]
    score = sum(t[ids[:, i]] for i, t in enumerate(taste))
    return TensorDataset(ids, (torch.rand(count) < torch.sigmoid(score)).float())


def main():
    torch.manual_seed(5)
    dataset = log(256 * PARTS * 45)
    batches = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(dataset), 256, drop_last=True)
    loader = DataLoader(dataset, sampler=batches, batch_size=None)
    model = DeepFM()
    for table in [*model.factors, *model.first]:
        nn.init.normal_(table.weight, std=0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for epoch in range(2):
        running = torch.zeros(())
        for number, (ids, clicked) in enumerate(loader, 1):
            loss = F.binary_cross_entropy_with_logits(model(ids), clicked)
            (loss / PARTS).backward()
            running += loss.detach()
            if number % PARTS == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch} loss {running.item() / len(loader):.4f}")


if __name__ == "__main__":
    main()

# expect: healthy
# held out
"""Predicts clicks from a dozen small embedding tables and some numbers; shuffled batches are cut from ready tensors."""
import argparse

import torch
from torch import nn


class ClickModel(nn.Module):
    def __init__(self, sizes, numbers, width):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, *sizes[:-1]]).cumsum(0))
        self.table = nn.Embedding(sum(sizes), width)
        self.bottom = nn.Sequential(nn.Linear(numbers, 128), nn.ReLU(), nn.Linear(128, width))
        fields = len(sizes) + 1
        self.register_buffer("upper", torch.triu_indices(fields, fields, 1))
        self.top = nn.Sequential(nn.Linear(width + len(self.upper[0]), 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 1))

    def forward(self, numbers, categories):
        dense = self.bottom(numbers)
        fields = torch.cat([dense[:, None], self.table(categories + self.offsets)], dim=1)
        crossed = torch.bmm(fields, fields.transpose(1, 2))[:, self.upper[0], self.upper[1]]
        return self.top(torch.cat([dense, crossed], dim=1)).squeeze(1)


def batches(tensors, size):
    order = torch.randperm(len(tensors[0]))
    for rows in order.split(size):
        yield [tensor[rows] for tensor in tensors]


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--print-freq", type=int, default=50)
options = parser.parse_args()

torch.manual_seed(31)
sizes = [50, 400, 12, 700, 90, 300, 24, 7, 31, 150, 500, 60]
rows = 256 * 130
numbers = torch.randn(rows, 13)
categories = torch.stack([torch.randint(0, size, (rows,)) for size in sizes], dim=1)
clicks = (numbers[:, 0] + 0.3 * torch.randn(rows) > 0).float()

model = ClickModel(sizes, 13, 32)
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01, fused=True)
step = 0
for epoch in range(options.epochs):
    for some_numbers, some_categories, some_clicks in batches((numbers, categories, clicks), options.batch_size):
        loss = criterion(model(some_numbers, some_categories), some_clicks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % options.print_freq == 0:
            print(f"Epoch {epoch} [{step}] loss {loss.item():.4f}")

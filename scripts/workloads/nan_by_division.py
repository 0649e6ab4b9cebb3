# expect: non_finite_loss line guilty
# held out
"""Divides by the spread of a batch, which is zero once in a while; a running mean is NaN from then on."""
import torch
from torch import nn


class Meter:
    def __init__(self):
        self.mean, self.count = 0.0, 0

    def add(self, value):
        self.count += 1
        self.mean += (value - self.mean) / self.count


def normalised(batch):
    return (batch - batch.mean(1, keepdim=True)) / batch.std(1, keepdim=True)


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    meter = Meter()
    for step in range(200):
        batch = torch.randn(128, 64)
        if step == 90:
            batch[5] = 0.0
        batch = normalised(batch)
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meter.add(float(loss))  # guilty
    print("mean loss", meter.mean)


main()
